"""Tries a server with the library openai: clients.py URL MODEL TOKEN. Prints JSON, which the test compares."""
import asyncio
import json
import sys

import openai

url, model, token = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key=token, max_retries=0)
found = {"models": [m.id for m in client.models.list()]}
messages = [{"role": "system", "content": "You are a king."}, {"role": "user", "content": "Who comes here?"}]
options = dict(model=model, messages=messages, max_tokens=12, temperature=0, seed=3)
whole = client.chat.completions.create(**options, logprobs=True, top_logprobs=2)
found["chat"] = whole.choices[0].message.content
found["finish"] = whole.choices[0].finish_reason
found["logprobs"] = "".join(p.token for p in whole.choices[0].logprobs.content)
found["top"] = sorted({len(p.top_logprobs) for p in whole.choices[0].logprobs.content})
found["usage"] = whole.usage.total_tokens - whole.usage.prompt_tokens - whole.usage.completion_tokens
text, usage = "", None
for chunk in client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}):
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
    usage = chunk.usage or usage
found["stream"], found["stream_usage"] = text, usage.completion_tokens == whole.usage.completion_tokens
texts = dict(model=model, max_tokens=6, temperature=0, seed=3)
found["completion"] = client.completions.create(prompt="My lord, the king", **texts).choices[0].text
found["completion_stream"] = "".join(c.choices[0].text for c in client.completions.create(prompt="My lord, the king", stream=True, **texts))
echo = client.completions.create(prompt=[[1, 2, 3], [4, 5, 6, 7]], **{**texts, "max_tokens": 0}, echo=True, logprobs=1)
found["echo"] = [len(c.logprobs.token_logprobs) for c in echo.choices]


async def many():
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key=token, max_retries=0) as c:
        return await asyncio.gather(*(c.completions.create(prompt="My lord, the king", **texts) for _ in range(6)))


found["concurrent"] = sorted({a.choices[0].text for a in asyncio.run(many())})


def refused(f):
    try:
        f()
    except openai.APIStatusError as e:
        return [type(e).__name__, e.param]
    return None


found["refused"] = [
    refused(lambda: client.chat.completions.create(**{**options, "model": "other"})),
    refused(lambda: client.completions.create(prompt="x", **{**texts, "temperature": -1})),
    refused(lambda: client.chat.completions.create(**options, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])),
]
wrong = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
found["unauthorized"] = refused(lambda: wrong.models.list())
print(json.dumps(found))
