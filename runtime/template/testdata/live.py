"""Renders templates for random_test.go with transformers' own environment.

Reads one JSON object a line from standard input and answers with a list a line, of an object for each of the variables:

    {"source": "...", "variables": [{...}, ...]} -> [{"text": "..."}, {"error": "TypeError: ..."}, {"skip": "why"}]
"""

import json
import re
import resource
import signal
import sys
import warnings

import goldens  # sets the time

SECONDS = 5
BYTES = 2 << 30


class Late(BaseException):
    pass


def late(*_):
    raise Late


def compiled(source):
    try:
        return goldens.chat._compile_jinja_template(source), None
    except TypeError as e:  # a constant dict that fails, also where it is not reached
        return None, {"skip": f"jinja2 does not compile it: {e}"}
    except Exception as e:
        return None, {"error": f"{type(e).__name__} in the syntax: {e}"}


def render(template, variables):
    try:
        text = template.render(**variables)
        text.encode()
    except Late:
        return {"skip": "it takes too long"}
    except Exception as e:
        if isinstance(e, NameError):  # a number of a constant expression that Python cannot read again
            return {"skip": "jinja2 writes nan into its code"}
        return {"error": f"{type(e).__name__}: {e}"}
    if re.search(r" at 0x[0-9a-f]", text):
        return {"skip": "it prints an address"}
    return {"text": text}


def main():
    warnings.simplefilter("ignore")  # about the code that jinja2 writes
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGALRM, late)
    for line in sys.stdin:
        job = json.loads(line)
        answers = []
        try:
            signal.alarm(SECONDS)
            template, error = compiled(job["source"])
            for variables in job["variables"]:
                answers.append(error if error else render(template, variables))
        except Late:
            answers = [{"skip": "it takes too long"} for _ in job["variables"]]
        signal.alarm(0)
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
