// Browsers start no worker for a page from the disk. The site's search is one: run it in a frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const base = new URL(url, location.href);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const load = (source) =>
        new Promise((loaded, failed) => {
          const script = inner.document.createElement("script");
          script.src = new URL(source, base);
          script.onload = loaded;
          script.onerror = failed;
          inner.document.body.append(script);
        });
      inner.importScripts = (...sources) => Promise.all(sources.map(load));
      this.ready = load(base);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
