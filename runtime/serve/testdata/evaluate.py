"""Scores a server with lm_eval, from the folder of the repository: evaluate.py URL MODEL TOKENIZER LIMIT. Prints the results as JSON."""
import json
import sys

import lm_eval
from lm_eval.tasks import TaskManager

url, model, tokenizer, limit = sys.argv[1:]
results = lm_eval.simple_evaluate(
    model="local-completions", tasks=["paragraphs"], limit=int(limit), bootstrap_iters=0,
    task_manager=TaskManager(include_path="runtime/serve/testdata/lm_eval", include_defaults=False),
    model_args=dict(model=model, base_url=url + "/v1/completions", tokenizer=tokenizer, tokenizer_backend="huggingface", num_concurrent=2, max_length=512),
)
print(json.dumps(results["results"]["paragraphs"]))
