# Finds the gateway by mDNS, and posts to it.
#
# Nothing here waits for longer than STEP_MS without feeding the watchdog: an ESP8266's
# bites after 1.6 to 3.2 s. So sockets do not block, and DNS, which does, is not asked.
import errno
import json
import os
import select
import socket
import struct
import time

CONNECT_MS = 4000
ANSWER_MS = 10000  # the gateway itself may wait 4 s for the cloud
STEP_MS = 500

# Taken once: when the gateway returns after an hour the heap may be in pieces.
ANSWER = memoryview(bytearray(1024))


# Waits until a socket is ready, with the watchdog fed.
def ready(poller, until, feed):
    while time.ticks_diff(until, time.ticks_ms()) > 0:
        feed()
        if poller.poll(STEP_MS):
            return
    raise OSError(errno.ETIMEDOUT)


# Posts JSON over one connection and returns status and decoded answer, of which it reads
# 1 KB at most. body is asked for what to send when the connection stands.
def post(address, host, path, body, feed):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        s.setblocking(False)
        try:
            s.connect(address)
        except OSError as error:
            if error.args[0] != errno.EINPROGRESS:
                raise
        poller = select.poll()
        poller.register(s, select.POLLOUT)
        until = time.ticks_add(time.ticks_ms(), CONNECT_MS)
        ready(poller, until, feed)
        text = json.dumps(body())
        text = (
            "POST %s HTTP/1.0\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (path, host, len(text), text)  # json.dumps leaves nothing outside ASCII that a node id may have
        ).encode()
        while text:
            ready(poller, until, feed)
            text = text[s.send(text) :]
        poller.register(s, select.POLLIN)
        until = time.ticks_add(time.ticks_ms(), ANSWER_MS)
        size = 0
        while size < len(ANSWER):
            ready(poller, until, feed)
            some = s.readinto(ANSWER[size:])
            if some == 0:  # the other side closed; None is nothing yet
                break
            size += some or 0
    finally:
        s.close()
    head, _, content = bytes(ANSWER[:size]).partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ValueError("no HTTP")
    try:
        decoded = json.loads(content)
    except ValueError:
        decoded = None
    return int(words[1]), decoded


# The address of a name. One of .local is asked for by mDNS here: not every board's
# getaddrinfo can (an ESP8266's cannot), and it would ask DNS and wait for 7 to 14 s. What
# else config.py may name is an IP address, for which getaddrinfo asks nobody.
def resolve(host, port, feed):
    if host.lower().endswith(".local"):
        for _ in range(3):
            found = query(host, feed)
            if found:
                print(host, "is", found)
                return socket.getaddrinfo(found, port)[0][-1]
        raise OSError("nobody answers to " + host)
    return socket.getaddrinfo(host, port)[0][-1]


MDNS = ("224.0.0.251", 5353)


# Asks the network for a name's IPv4 address. The question comes from another port than
# 5353, so that the answer comes here and to nobody else (RFC 6762, 6.7).
def query(host, feed):
    number = os.urandom(2)
    question = number + b"\0\0\0\1\0\0\0\0\0\0"
    for label in host.split("."):
        question += bytes([len(label)]) + label.encode()
    question += b"\0\0\1\0\1"
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        s.sendto(question, socket.getaddrinfo(MDNS[0], MDNS[1])[0][-1])
        poller = select.poll()
        poller.register(s, select.POLLIN)
        until = time.ticks_add(time.ticks_ms(), 2 * STEP_MS)
        while True:
            ready(poller, until, feed)
            found = answered(s.recv(512), number, host)
            if found:
                return found
    except OSError as error:
        print("mdns:", error)
    finally:
        s.close()


# The first IPv4 address that a DNS message tells of a name, or None.
def answered(message, number, host):
    try:
        if message[:2] != number or not message[2] & 0x80:
            return None
        questions, answers = struct.unpack_from(">HH", message, 4)
        at = 12
        for _ in range(questions):
            at = name(message, at)[1] + 4
        for _ in range(answers):
            owner, at = name(message, at)
            kind, _, _, size = struct.unpack_from(">HHIH", message, at)
            at += 10
            if kind == 1 and size == 4 and owner == host.lower():
                return "%d.%d.%d.%d" % tuple(message[at : at + 4])
            at += size
    except (IndexError, ValueError, TypeError):  # cut off
        pass
    return None


# A name in a DNS message, in small letters, and where the bytes after it begin.
def name(message, at):
    labels, end = [], None
    for _ in range(20):  # a name that refers to itself would have no end
        size = message[at]
        if size == 0:
            return ".".join(labels), (end or at + 1)
        if size >= 0xC0:
            end = end or at + 2
            at = (size & 0x3F) << 8 | message[at + 1]
        else:
            labels.append(message[at + 1 : at + 1 + size].decode().lower())
            at += 1 + size
    raise ValueError("name without end")
