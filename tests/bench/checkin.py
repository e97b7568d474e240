"""Sends the one request of a converged tick with Python's standard library: checkin.py URL TOKEN BODY_FILE."""

import json
import sys
import urllib.request

url, token, body_file = sys.argv[1:]
with open(body_file, "rb") as file:
    body = file.read()
request = urllib.request.Request(
    url,
    data=body,
    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
)
with urllib.request.urlopen(request, timeout=30) as answer:
    json.load(answer)["action"]
