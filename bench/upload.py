#!/usr/bin/env python3
"""Measures an upload through a proxy with request buffering off.

    bench/upload.py BINARY [--mb 64] [--rate 16] [--runs 3]

A client sends so many MB at so many MB/s through BINARY (weir or nginx) to an origin that reads
no faster. Printed for a body of known length and for chunks: the whole time over the time of
sending, the time until the origin has its first byte, and what was written to the temporary
directories. The issue's figure: below 1.1, below 0.3 s, nothing.
"""
import argparse, os, pathlib, socket, statistics, subprocess, tempfile, threading, time

MB = 1 << 20
PIECE = 64 << 10


def pace(start, sent, rate):
    wait = start + sent / rate - time.monotonic()
    if wait > 0:
        time.sleep(wait)


def files(path):
    return sum(f.stat().st_size for f in pathlib.Path(path).rglob("*") if f.is_file())


def receive(listener, size, rate, chunked, temp, seen):
    """Reads one upload no faster than the rate and answers it."""
    conn, _ = listener.accept()
    data = b""
    while b"\r\n\r\n" not in data:
        data += conn.recv(1)
    tail = data = conn.recv(PIECE)
    start, got, on_disk = time.monotonic(), len(data), 0
    seen["first"] = start
    while got < size or (chunked and not tail.endswith(b"\r\n0\r\n\r\n")):
        pace(start, got, rate)
        data = conn.recv(PIECE)
        if not data:
            break
        got += len(data)
        tail = (tail + data)[-16:]
        if got // MB != (got - len(data)) // MB:
            on_disk = max(on_disk, files(temp))
    seen["disk"] = on_disk
    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    conn.close()


def upload(port, listener, size, rate, chunked, temp):
    seen = {}
    origin = threading.Thread(target=receive, args=(listener, size, rate, chunked, temp, seen))
    origin.start()
    start = time.monotonic()
    client = socket.create_connection(("127.0.0.1", port))
    how = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    client.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{how}\r\n\r\n".encode())
    piece = b"x" * PIECE
    framed = b"%x\r\n" % PIECE + piece + b"\r\n" if chunked else piece
    for at in range(0, size, PIECE):
        pace(start, at, rate)
        client.sendall(framed)
    if chunked:
        client.sendall(b"0\r\n\r\n")
    sent = time.monotonic() - start
    answer = b""
    while data := client.recv(4096):
        answer += data
    done = time.monotonic() - start
    origin.join()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"not a 200: {answer[:200]!r}")
    return done / sent, seen["first"] - start, seen["disk"]


def conf(directory, port, origin):
    return f"""daemon off; pid {directory}/pid; error_log {directory}/error.log;
        events {{}} http {{ access_log off; client_max_body_size 0;
        client_body_temp_path {directory}/temp/body; proxy_temp_path {directory}/temp/proxy;
        server {{ listen 127.0.0.1:{port}; location / {{ proxy_http_version 1.1;
        proxy_request_buffering off; proxy_pass http://127.0.0.1:{origin}; }} }} }}"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--rate", type=float, default=16, help="MB/s")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        os.makedirs(f"{directory}/temp")
        os.makedirs(f"{directory}/logs")
        port = free_port()
        path = f"{directory}/nginx.conf"
        pathlib.Path(path).write_text(conf(directory, port, listener.getsockname()[1]))
        server = subprocess.Popen([args.binary, "-p", directory, "-c", path])
        try:
            for _ in range(100):
                with socket.socket() as s:
                    if s.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            for chunked in (False, True):
                runs = [upload(port, listener, args.mb * MB, args.rate * MB, chunked,
                               f"{directory}/temp") for _ in range(args.runs)]
                ratio, first, disk = (statistics.median(r) for r in zip(*runs))
                name = "chunked" if chunked else "length"
                print(f"{name:8} {args.mb} MB at {args.rate:g} MB/s: time/sending {ratio:.3f}, "
                      f"first byte {first * 1000:.1f} ms, on disk {disk:.0f} bytes")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
