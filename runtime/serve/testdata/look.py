"""Shows a server a picture or a clip with the library openai: look.py URL MODEL FILE. Prints JSON, which the test compares."""
import base64
import json
import pathlib
import sys

import openai

url, model, file = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
data = base64.b64encode(pathlib.Path(file).read_bytes()).decode()
kind = pathlib.Path(file).suffix[1:]


def ask(part, **more):
    parts = [{"type": "text", "text": "Look at "}, part, {"type": "text", "text": "now."}]
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": parts}], max_tokens=6, temperature=0, **more)


if kind in ("wav", "flac"):
    part = {"type": "input_audio", "input_audio": {"data": data, "format": kind}}
    wrong = {"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}}
else:
    part = {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}", "detail": "auto"}}
    wrong = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
whole = ask(part)
found = {"answer": whole.choices[0].message.content, "prompt": whole.usage.prompt_tokens}
found["stream"] = "".join(c.choices[0].delta.content or "" for c in ask(part, stream=True, seed=1))
try:
    ask(wrong)
except openai.BadRequestError as e:
    found["refused"] = e.param
print(json.dumps(found))
