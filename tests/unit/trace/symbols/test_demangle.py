"""Mangled names of kernels, against what binutils' c++filt makes of them."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.trace.reader import read_trace
from perfkit.trace.symbols.demangle import LONGEST, readable_names
from tests.support.traces.trace_builder import TraceBuilder

NAMES = {
    "_Z6kernelPKfPfi": "kernel(float const*, float*, int)",
    "_ZN2at6native12_GLOBAL__N_113fused_dropoutIfLi4EEEvPT_f": (
        "void at::native::(anonymous namespace)::fused_dropout<float, 4>(float*, float)"
    ),
    "_ZN7cutlass6KernelINS_4gemm9GemmShapeILi64ELi128ELi32EEENS_10tfloat32_tEEEvNT_6ParamsE": (
        "void cutlass::Kernel<cutlass::gemm::GemmShape<64, 128, 32>, cutlass::tfloat32_t>"
        "(cutlass::gemm::GemmShape<64, 128, 32>::Params)"
    ),
    "_Z4fillIJifEEvDpPT_": "void fill<int, float>(int*, float*)",
    "_Z3mapIJRiEJfdEEvDpOT_DpRKT0_": "void map<int&, float, double>(int&, float const&, double const&)",
    "_Z1fIJEEvDpT_": "void f<>()",
    "_Z1fIXadL_Z1gvEEEvv": "void f<&(g())>()",
    "_Z1fILb1ELin5ELm3ELN1E4KindE2EEvv": "void f<true, -5, 3ul, (E::Kind)2>()",
    "_ZN1A1BIiEC1ERKS1_": "A::B<int>::B(A::B<int> const&)",
    "_ZNK1AclEPU3AS1f": "A::operator()(float AS1*) const",
    "_Z1fPFivEPA3_iM1AFvvE": "f(int (*)(), int (*) [3], void (A::*)())",
    "_ZZN1A1fIiEEvT_ENKUlfE0_clEf": "A::f<int>(int)::{lambda(float)#2}::operator()(float) const",
    "_Z1fRiOS_DF16bDv4_f": "f(int&, int&, std::bfloat16_t, float __vector(4))",
    "_Z1fIiiiiiiiiiiidEvT10_": "void f<int, int, int, int, int, int, int, int, int, int, int, double>(double)",
    "_Z1fv.kd": "f() [clone .kd]",
    "_ZSt4moveRSs": "std::move(std::basic_string<char, std::char_traits<char>, std::allocator<char> >&)",
}
"""Written by hand from the ABI's grammar."""

needs_reference = pytest.mark.skipif(shutil.which("c++filt") is None, reason="needs c++filt of binutils")


def demangle(name: str) -> str:
    (spelled,) = readable_names([name])
    return spelled


def reference(names: list[str]) -> list[str]:
    # -r: without a limit, c++filt leaves names of more than 1,024 characters alone.
    done = subprocess.run(["c++filt", "-r"], input="\n".join(names), capture_output=True, text=True, check=True)
    return done.stdout.split("\n")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_spelled_as_declared(name: str) -> None:
    assert demangle(name) == NAMES[name]


@needs_reference
def test_the_spelling_is_that_of_binutils() -> None:
    assert dict(zip(NAMES, reference(list(NAMES)), strict=True)) == NAMES


@needs_reference
@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm of binutils")
def test_symbols_of_a_real_library_are_spelled_as_by_binutils() -> None:
    # The path without importing torch.
    folder = next(Path(path) / "torch" / "lib" for path in sys.path if (Path(path) / "torch" / "lib").is_dir())
    listed = subprocess.run(["nm", "-D", folder / "libc10.so"], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1].partition("@")[0] for line in listed.splitlines() if " _Z" in line][::4]
    spelled = [demangle(name) for name in names]

    unread = sum(one == name for one, name in zip(spelled, names, strict=True))
    wrong = [one for one, right in zip(spelled, reference(names), strict=True) if one != right and one not in names]
    assert len(names) > 200
    assert wrong == []
    assert unread < len(names) / 50


@pytest.mark.parametrize(
    "name",
    [
        "gemm",
        "_Z",
        "_ZN",
        "_ZNE",
        "_ZNS_E",
        "_Z1fILi",
        "_Z99999999999f",
        "_Z1fIDTplfp_fp_EEvT_",  # an expression
        "_Z1fIJifEEvDpT_S1_",  # refers to one element of an expanded pack
        "_Z1fv@GLIBC",
        "_Z1fT0_",
        "_Z1f" + "P" * 5_000 + "i",
        "_Z" + "N" * 5_000,
        "_Z1fI" + "1AI" * 2_000,
        "_Z1f" + "i" * LONGEST,
        "_Z1f" + "N1a1bI" * 99 + "i" + "EE" * 99,
        "_Z1fIJ" + "i" * 2_000 + "EEv" + "DpT_" * 1_500,  # three million parameters
    ],
)
def test_what_cannot_be_read_stays(name: str) -> None:
    assert demangle(name) == name


def test_deep_names_leave_room_for_whoever_reads_a_trace() -> None:
    def below(frames: int) -> str:
        return demangle(name) if frames == 0 else below(frames - 1)

    name = "_Z1f" + "N1a1bI" * 49 + "i" + "EE" * 49
    assert below(sys.getrecursionlimit() - 300) == name


@given(
    st.sampled_from(list(NAMES)), st.integers(0, 99), st.integers(0, 9), st.text("SITNEZLXJDpPRKF_0123vi", max_size=4)
)
def test_damaged_names_raise_nothing(name: str, at: int, removed: int, added: str) -> None:
    assert demangle(f"{name[:at]}{added}{name[at + removed :]}")


def test_a_text_that_doubles_at_each_step_is_bounded() -> None:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    steps = "".join(f"1aIS{digits[2 * k]}_S{digits[2 * k]}_E" for k in range(18))
    name = f"_Z1f1aIiiE1aIS0_S0_E{steps}"

    begin = time.process_time()
    assert len(demangle(name)) < 2_000_000
    assert time.process_time() - begin < 2


def test_names_of_a_trace_stay_distinct() -> None:
    names = ("_Z1fv", "aten::mm", "f()", "_ZN1AC1Ev", "_ZN1AC2Ev", "_Z1gv")

    assert readable_names(names) == ("_Z1fv", "aten::mm", "f()", "A::A()", "_ZN1AC2Ev", "g()")


def test_the_names_of_a_trace_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.trace.symbols.demangle._MOST_WORK", 2_000)

    spelled = readable_names([f"_Z4f{k:03}iii" for k in range(30)])

    assert spelled[0] == "f000(int, int, int)"
    assert spelled[-1] == "_Z4f029iii"


def test_the_reader_spells_kernels_as_declared(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.kernel("_Z6kernelPKfPfi", 0, 5)
    path = tmp_path / "rank0.json"
    builder.write(path)

    assert read_trace(path).events.names == ("kernel(float const*, float*, int)",)
