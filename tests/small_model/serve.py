"""`python serve.py MODEL PORT`: an OpenAI-compatible server for a GGUF file, on this machine alone, until it is killed.

Runs in an interpreter that has xllamacpp (llama.cpp's own server): see `make test-model`.
"""

import signal
import sys

NAME = "qwen2.5-coder-1.5b"
CONTEXT = 16_384  # tokens of a prompt and its answer
THREADS = 2


def main(model: str, port: int) -> None:
    import xllamacpp  # type: ignore[import-not-found]  # whoever needs the name alone has it not

    wanted = xllamacpp.CommonParams()
    wanted.model.path, wanted.model_alias = model, {NAME}
    wanted.n_ctx, wanted.n_parallel, wanted.cpuparams.n_threads = CONTEXT, 1, THREADS
    wanted.offline, wanted.ui, wanted.use_jinja = True, False, True
    wanted.hostnames, wanted.port = ["127.0.0.1"], port
    server = xllamacpp.Server(wanted)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
