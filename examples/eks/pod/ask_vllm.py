"""Ask vLLM's server, print its answer as it comes, and tokens a second. Standard library only."""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request

# Without a proxy: the server is of this pod.
BROWSER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def model(server):
    """The model that the server has; waits until it is loaded."""
    while True:
        try:
            with BROWSER.open(f"{server}/v1/models", timeout=10) as answer:
                return json.load(answer)["data"][0]["id"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{server} answers {error.code}: is it vLLM's server?")
        except OSError as error:
            print(f"waiting for {server}: {getattr(error, 'reason', error)}", file=sys.stderr)
            time.sleep(5)


def parts(server, name, question, tokens):
    """Parts of the answer, as the server sends them."""
    body = {"model": name, "messages": [{"role": "user", "content": question}], "max_tokens": tokens, "stream": True}
    body["stream_options"] = {"include_usage": True}
    request = urllib.request.Request(  # noqa: S310 - to the server that the user names
        f"{server}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with BROWSER.open(request, timeout=300) as answer:
        for line in answer:
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield json.loads(line[len(b"data: ") :])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question")
    parser.add_argument("--server", default="http://127.0.0.1:8000")
    parser.add_argument("--tokens", type=int, default=256, help="the most that the answer may have")
    options = parser.parse_args()
    name = model(options.server)
    start, first, count = time.monotonic(), None, None
    for part in parts(options.server, name, options.question, options.tokens):
        for choice in part["choices"]:
            if choice["delta"].get("content"):
                first = first or time.monotonic()
                print(choice["delta"]["content"], end="", flush=True)
        if part.get("usage"):
            count = part["usage"]["completion_tokens"]
    print()
    if count is None or first is None:
        sys.exit(f"{name} gave no answer, or not its number of tokens")
    seconds = time.monotonic() - first
    rate = f"{(count - 1) / seconds:.1f}" if count > 1 and seconds > 0 else "UNKNOWN"
    print(f"{name}: first token after {first - start:.2f} s, then {rate} tokens/s", file=sys.stderr)


if __name__ == "__main__":
    main()
