"""LiteLLM as a client of both APIs, unmodified, against a running gateway. Asserts, and prints what it did. Environment: as openai_sdk.py.

LiteLLM tells errors apart by the text that it gets beside their status, so this holds the words of each.
"""
import json
import os

# Else it fetches its list of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import httpx2 as http
import litellm
from litellm.llms.openai.common_utils import OpenAIError

BASE_URL, KEY = (os.environ[name] for name in ("REROUTER_BASE_URL", "REROUTER_KEY"))
REFUSED_KEYS = json.loads(os.environ["REROUTER_REFUSED_KEYS"])
ROOT = BASE_URL.removesuffix("/v1")
MESSAGES = [{"role": "user", "content": "Is anybody there?"}]
LONG = [{"role": "user", "content": "word " * 300}]
litellm.suppress_debug_info = True


def ask(api, model, key=KEY, messages=MESSAGES, **more):
    base = BASE_URL if api == "openai" else ROOT
    options = {"api_base": base, "api_key": key, "max_tokens": 64, "num_retries": 0, "max_retries": 0}
    return litellm.completion(model=f"{api}/{model}", messages=messages, **options, **more)


def raises(kind, call):
    try:
        call()
    except Exception as error:
        assert type(error) is kind, f"{error!r} instead of {kind.__name__}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def answers(api):
    answer = ask(api, "auto")
    assert answer.choices[0].message.content == "Is anybody there?" and answer.usage.total_tokens > 0, answer
    text = "".join(chunk.choices[0].delta.content or "" for chunk in ask(api, "auto", stream=True))
    assert text == "Is anybody there?", text
    print(f"{api}: an answer, a stream")


def refusals(api):
    """What is asked, and the kind of error that is right."""
    filtered = "strict/filter" if api == "openai" else "ant-strict/filter"
    return (
        ("auto", "rtr_wrong", MESSAGES, litellm.AuthenticationError),
        ("no-such-model", KEY, MESSAGES, litellm.NotFoundError),
        ("demo/status-429", KEY, MESSAGES, litellm.RateLimitError),
        ("auto", REFUSED_KEYS["hasty"], MESSAGES, litellm.RateLimitError),
        ("demo/dear", REFUSED_KEYS["broke"], MESSAGES, litellm.RateLimitError),
        ("demo/short", KEY, LONG, litellm.ContextWindowExceededError),
        (filtered, KEY, MESSAGES, litellm.ContentPolicyViolationError),
    )


def errors(api):
    for model, key, messages, kind in refusals(api):
        raises(kind, lambda: ask(api, model, key, messages))
    print(f"{api}: ContextWindowExceededError and all others")


def errors_as_older_sdks_tell_them():
    """OpenAI's SDK before 3.0 puts the whole body into the text of its errors, type and code among it."""
    for model, key, messages, kind in refusals("openai"):
        body = {"model": model, "messages": messages, "max_tokens": 64}
        answer = http.post(f"{BASE_URL}/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})
        error = OpenAIError(status_code=answer.status_code, message=f"Error code: {answer.status_code} - {answer.json()}")
        raises(kind, lambda: litellm.exception_type(model=model, original_exception=error, custom_llm_provider="openai"))
    print("openai: the same by an older SDK")


def forbidden():
    """It has no kind for a 403 of these APIs; what it raises is none of the others, and has the status."""
    error = raises(litellm.APIError, lambda: ask("openai", "auto", REFUSED_KEYS["forbidden"]))
    assert error.status_code == 403 and "scope" in str(error), error
    print("forbidden: a 403")


def main():
    ask("openai", "auto", REFUSED_KEYS["hasty"])
    for api in ("openai", "anthropic"):
        answers(api)
        errors(api)
    errors_as_older_sdks_tell_them()
    forbidden()
    print("litellm done")


if __name__ == "__main__":
    main()
