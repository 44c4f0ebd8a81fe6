"""Shows a server a picture with the library openai: look.py URL MODEL PICTURE. Prints JSON, which the test compares."""
import base64
import json
import sys

import openai

url, model, picture = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
with open(picture, "rb") as f:
    data = "data:image/jpeg;base64," + base64.b64encode(f.read()).decode()


def ask(address, **more):
    parts = [{"type": "text", "text": "Look at "}, {"type": "image_url", "image_url": {"url": address, "detail": "auto"}}, {"type": "text", "text": "now."}]
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": parts}], max_tokens=6, temperature=0, **more)


whole = ask(data)
found = {"answer": whole.choices[0].message.content, "prompt": whole.usage.prompt_tokens}
found["stream"] = "".join(c.choices[0].delta.content or "" for c in ask(data, stream=True, seed=1))
try:
    ask("https://example.org/x.png")
except openai.BadRequestError as e:
    found["refused"] = e.param
print(json.dumps(found))
