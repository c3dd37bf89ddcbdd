"""Actions on the API and the port of the gateway."""

import socket
import urllib.error
import urllib.request

from .base import action, denied


@action("answer a permission request without a key")
def answer_permission(targets):
    url = f"http://127.0.0.1:{targets['port']}/v1/sessions/{targets['session']}/permissions/r1"
    request = urllib.request.Request(url, b'{"optionId":"allow"}', {"Content-Type": "application/json"})
    try:
        return urllib.request.urlopen(request, timeout=5).status
    except urllib.error.HTTPError as error:
        return denied(f"status {error.code}") if error.code in (401, 403) else f"status {error.code}"


@action("bind the port of the running gateway")
def bind_port(targets):
    with socket.socket() as bound:
        listen_at(bound, ("127.0.0.1", targets["port"]))


@action("bind the port of the running gateway with IPv6")
def bind_ipv6_port(targets):
    with socket.socket(socket.AF_INET6) as bound:
        listen_at(bound, ("::1", targets["port"]))


def listen_at(bound, address):
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
    bound.bind(address)
    bound.listen()


def bind_in_a_loop(targets):
    """Answers every request at the port of the gateway, and stores the requests."""
    with open(targets["daemonFile"], "w") as file:
        file.write("runs")
    port = targets["port"]
    addresses = {
        socket.AF_INET: [("127.0.0.1", port)],
        socket.AF_INET6: [("::1", port), ("::", port)],
    }
    bound = {}
    while True:
        for family, address in [(family, one) for family, all in addresses.items() for one in all]:
            try:
                if address not in bound:
                    listener = socket.socket(family)
                    listen_at(listener, address)
                    listener.settimeout(0.01)
                    bound[address] = listener
                connected, _ = bound[address].accept()
                with open(targets["daemonFile"], "ab") as file:
                    file.write(connected.recv(4096))
            except OSError:
                pass
