"""The folders of a host where engines keep what they compile: kernels, graphs, their tuning."""

from __future__ import annotations

from lockstep.files.managed_file import HOME
from lockstep.lock.engine_id import DIGITS


def container_cache_variables(image: str) -> dict[str, str]:
    """Return an engine's variables in a container of REPOSITORY@sha256:…, volume at /cache."""
    variables = _variables("/cache", image.rpartition(":")[2][:DIGITS])
    # Python that the image has not compiled is compiled at every start, and goes with the
    # container: vLLM's images have none of it (vllm-project/vllm#55422, open on 2026-09-22: a tenth
    # of a start on four processors). A venv has what the deploy's check of the engine imported.
    return {**variables, "PYTHONPYCACHEPREFIX": f"{variables['XDG_CACHE_HOME']}/python"}


def venv_cache_variables(engine_id: str) -> dict[str, str]:
    """Return the variables of an engine in the venv of that id."""
    return _variables(f"{HOME}/.cache", engine_id)


def _variables(home: str, made_by: str) -> dict[str, str]:
    # Kernels that an older Triton had compiled gave garbled text on a Spark, silently
    # (vllm-project/vllm#41871, 2026-05-06). So no build reads what another build compiled, and a
    # rollback finds its own kernels again.
    folder = f"{home}/{made_by}"
    return {
        # Cache of the driver's compiler, for kernels that an image has as PTX only, as
        # FlashAttention 2's ("8.0+PTX") and some of Marlin's. Its default is a folder of HOME,
        # which a container does not keep. 4 GiB is the most that it takes, by CUDA's documentation
        # of the variable (quoted from memory, 2026-11).
        "CUDA_CACHE_PATH": f"{folder}/nv",
        "CUDA_CACHE_MAXSIZE": str(4 * 2**30),
        "XDG_CACHE_HOME": folder,
        "FLASHINFER_WORKSPACE_BASE": folder,
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        # The defaults of these are folders of HOME too. SGLang compiles kernels of its own, in
        # tvm-ffi's folder (sgl-project/sglang#13453), in 0.5.23 in one of its own
        # (kernels/jit/utils/compile/cache.py), and TileLang's for DeepSeek V4
        # (sgl-project/sglang#39364).
        "SGLANG_CACHE_DIR": f"{folder}/sglang",
        "SGLANG_JIT_CACHE_DIR": f"{folder}/sglang/jit",
        "TVM_FFI_CACHE_DIR": f"{folder}/tvm-ffi",
        "TILELANG_CACHE_DIR": f"{folder}/tilelang",
        # Code of a repository is copied there because HF_HOME is read-only for engines.
        "HF_MODULES_CACHE": f"{home}/huggingface/modules",
    }
