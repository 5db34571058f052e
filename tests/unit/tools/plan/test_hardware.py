from pathlib import Path

import pytest

from perfkit.errors import UsageError
from perfkit.records.plan import PlannedDevice
from perfkit.tools.plan.formulas.step_time import across_hosts, bandwidth_of
from perfkit.tools.plan.hardware import find_hardware
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.precision import PRECISIONS

BF16 = PRECISIONS["bfloat16"]


def find(**options: object) -> PlannedDevice:
    found = find_hardware(BF16, **({"device": None, "cluster": None} | options))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_short_name_finds_the_row_of_the_device_table() -> None:
    device = find(device="a100-40g")
    assert (device.name, device.memory_bytes, device.flops_per_s) == ("NVIDIA A100-SXM4-40GB", 40 * 10**9, 312e12)
    assert device.host_bytes_per_s == 300e9


@pytest.mark.parametrize(("name", "per_host"), [("polaris", 4), ("aurora", 12), ("sophia", 8)])
def test_clusters_have_a_device_of_the_device_table_and_a_source(name: str, per_host: int) -> None:
    device = find(cluster=name)
    assert device.devices_per_host == per_host
    assert device.memory_bytes
    assert device.flops_per_s
    assert any("ALCF" in source for source in device.sources)


def test_every_short_name_has_a_device() -> None:
    for name in ("v100-16g", "v100-32g", "p4", "t4", "a100-80g", "h100", "h200", "b200", "mi250x", "mi300x", "max1550"):
        assert find(device=name).sources


def test_a_device_without_a_peak_for_the_precision_has_none() -> None:
    assert find(device="p4").flops_per_s is None


def test_a_user_adds_devices_and_clusters(tmp_path: Path) -> None:
    devices, clusters = tmp_path / "devices.toml", tmp_path / "clusters.toml"
    devices.write_text('[[device]]\nname = "mine"\ntflops = { bfloat16 = 1 }\nmemory_gb = 0.001\n')
    clusters.write_text('[[cluster]]\nname = "own"\ndevice = "mine"\ndevices_per_host = 2\nnetwork_gb_per_s = 1\n')
    device = find(cluster="own", device_table=devices, cluster_table=clusters)
    assert (device.memory_bytes, device.network_bytes_per_s, device.host_bytes_per_s) == (10**6, 1e9, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "a101"}, "not in the device table"),
        ({"cluster": "theta"}, "choose from polaris, aurora, sophia"),
        ({"cluster": "polaris", "device": "h100"}, "remove --device h100"),
    ],
)
def test_unknown_names_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find(**options)


@pytest.mark.parametrize(
    "content",
    [
        "[[cluster]]\nname = 1",
        "x = [",
        "[[cluster]]\nname = 'a'\ndevice = 'b'\ndevices_per_host = 0\nnetwork_gb_per_s = 1",
    ],
)
def test_a_bad_table_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "clusters.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"clusters\.toml"):
        find(cluster="polaris", cluster_table=path)


def test_groups_within_a_host_use_its_links_and_others_their_share_of_the_network() -> None:
    device = find(cluster="polaris")
    layout = Layout(shard=4, tp=4)
    assert not across_hosts("tp", layout, device)
    assert across_hosts("dp", layout, device)
    assert bandwidth_of("tp", layout, device) == 300e9
    assert bandwidth_of("dp", layout, device) == 12.5e9, "one member of each group per host"
    assert bandwidth_of("dp", Layout(shard=16), device) == 50e9, "the whole network of a host"
