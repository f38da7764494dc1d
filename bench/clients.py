"""A server that is started, the clients that ask it, and the servers that it asks, in Python's library alone.

Everything stays on loopback and has a limit of time.
"""
import re, signal, socket, ssl, subprocess, threading, time

WAIT_SECS = 60
BODY = {'/ok': b'OK\n', '/10k.html': b'<p>ten kilobytes of a page</p>\n' * 330, '/1m.html': b'<p>a megabyte of a page</p>\n' * 38000}
BROWSER = ['Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', 'Accept-Language: en-GB,en;q=0.5',
           'Referer: http://localhost/index.html', 'Cookie: session=0123456789abcdef0123456789abcdef; theme=dark',
           'Upgrade-Insecure-Requests: 1', 'Sec-Fetch-Dest: document', 'Sec-Fetch-Mode: navigate', 'Sec-Fetch-Site: same-origin']


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def prepare(work):
    """What the configurations name: pages, and a certificate made by `openssl`."""
    (work / 'html').mkdir()
    (work / 'logs').mkdir()
    (work / 'html/1k.html').write_bytes(b'x' * 1024)
    for path, body in BODY.items():
        (work / f'html{path}').write_bytes(body)
    (work / 'html/parts.html').write_bytes(b'<p>a page of parts</p><!--#echo var="uri" --><!--#if expr="$arg_a" -->yes<!--#else -->no<!--#endif -->\n' * 20)
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '30', '-subj', '/CN=localhost',
                    '-keyout', work / 'key.pem', '-out', work / 'cert.pem'], check=True, capture_output=True)


def wait_for_port(server, port):
    end = time.monotonic() + WAIT_SECS
    while time.monotonic() < end:
        if server.poll() is not None:
            raise SystemExit(f'it does not start: {server.stderr.read()}')
        try:
            return socket.create_connection(('127.0.0.1', port), timeout=WAIT_SECS).close()
        except OSError:
            time.sleep(0.05)
    raise SystemExit('it does not listen')


def stop(server):
    """It ends by itself, so that it can write what it has counted."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(WAIT_SECS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


class Origin:
    """Answers requests, each with one write: a thread for each connection."""

    def __init__(self, certificate=None):
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            conn, _ = self.listener.accept()
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.begin, args=(conn,), daemon=True).start()

    def begin(self, conn):
        try:
            self.serve(self.context.wrap_socket(conn, server_side=True) if self.context else conn)
        except OSError:
            conn.close()

    def serve(self, conn):
        text = b''
        while True:
            while b'\r\n\r\n' not in text:
                more = conn.recv(65536)
                if not more:
                    return
                text += more
            head, text = text.split(b'\r\n\r\n', 1)
            length = re.search(rb'(?i)\ncontent-length: (\d+)', head)
            while length and len(text) < int(length[1]):
                text += conn.recv(65536)
            text = text[int(length[1]):] if length else text
            path, _, arguments = head.split(b' ')[1].decode().partition('?')
            conn.sendall(answer(BODY[path], 'chunked' in arguments))


def answer(body, chunked):
    if chunked:
        return b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n' % (len(body), body)
    return b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body)


class FastCgi(Origin):
    """Answers as an application behind FastCGI, on connections that are kept."""

    def serve(self, conn):
        text = b''
        while True:
            while len(text) < 8 or len(text) < self.end(text):
                more = conn.recv(65536)
                if not more:
                    return
                text += more
            kind, number, ended = text[1], text[2:4], text[4:6] == b'\0\0'
            text = text[self.end(text):]
            if kind == 5 and ended:
                page = b'Status: 200 OK\r\nContent-Type: text/html\r\n\r\n' + BODY['/ok']
                conn.sendall(b''.join(b'\1' + bytes([k]) + number + len(v).to_bytes(2, 'big') + b'\0\0' + v for k, v in ((6, page), (6, b''), (3, bytes(8)))))

    @staticmethod
    def end(text):
        return 8 + int.from_bytes(text[4:6], 'big') + text[6]


class Uwsgi(Origin):
    """Answers as an application behind uwsgi, one request a connection."""

    def serve(self, conn):
        text = conn.recv(65536)
        while len(text) < 4 or len(text) < 4 + int.from_bytes(text[1:3], 'little'):
            text += conn.recv(65536)
        conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n' + BODY['/ok'])
        conn.close()


class Http1:
    def __init__(self, port, path, field='', tls=False, method='GET', body=b''):
        self.sock = open_socket(port)
        if tls:
            self.sock = client_tls().wrap_socket(self.sock)
        fields = ['Host: localhost', 'User-Agent: instructions', 'Accept: */*', *filter(None, field.split('\n'))]
        fields += [f'Content-Length: {len(body)}'] if body else []
        self.request = '\r\n'.join([f'{method} {path} HTTP/1.1', *fields, '', '']).encode() + body

    def send(self):
        self.sock.sendall(self.request)

    def receive(self):
        """The status; the answer must have a length or be chunked, or be 304."""
        text = b''
        while b'\r\n\r\n' not in text:
            text += self.some()
        head, body = text.split(b'\r\n\r\n', 1)
        length = re.search(rb'(?i)content-length: (\d+)', head)
        got, left = len(body), int(length[1]) if length else 0
        if not length and b'hunked' in head:
            while not body.endswith(b'0\r\n\r\n'):
                body = body[-5:] + self.some()
        while got < left:
            got += len(self.some())
        return int(head[9:12])

    def some(self):
        data = self.sock.recv(65536)
        if not data:
            raise SystemExit('the connection was closed')
        return data

    def close(self):
        self.sock.close()


class Visitor(Http1):
    """Who goes from page to page, as browsers say it: a user agent of its own, each page the next one's referrer."""
    AGENTS = ['Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36',
              'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36 Edg/120.0.0.0',
              'Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1',
              'Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0',
              'Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0.0.0 Mobile Safari/537.36',
              'Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)',
              'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15']
    PAGES = ['/', '/index.html', '/news/2026/11/a-longer-title-of-an-article', '/css/site.css', '/js/app.3f2a1c.js', '/images/logo.png',
             '/shop/list?page=2&sort=price', '/shop/item/4711', '/shop/item/815', '/about', '/favicon.ico', '/api/cart?id=12',
             '/search?q=%C3%BCber', '/fonts/text.woff2', '/images/photos/autumn%20walk.jpg', '/contact/']
    count = 0

    def __init__(self, port, kind):
        """`visitors` go the same way again and again, `mixed` ones from anywhere to anywhere, `fresh` ones to pages that nobody has
        asked for."""
        self.number = Visitor.count % 8
        Visitor.count += 1
        super().__init__(port, '/')
        self.kind, self.at, self.asked = kind, 5 * self.number, Visitor.count << 32

    def page(self, n):
        return self.PAGES[n % len(self.PAGES)]

    def send(self):
        path, came = self.page(self.at), self.page(self.at - 1)
        self.asked += 1
        if self.kind == 'mixed':
            # All pages and all links to them, each pair once in 256.
            came = self.page(self.at + self.at // len(self.PAGES))
        elif self.kind == 'fresh':
            path = f'/pages/{self.asked}'
        self.at += 1
        fields = ['Host: localhost', f'User-Agent: {self.AGENTS[self.number % len(self.AGENTS)]}', *BROWSER[:2],
                  f'Referer: http://localhost{came}', *BROWSER[3:]]
        self.sock.sendall('\r\n'.join([f'GET {path} HTTP/1.1', *fields, '', '']).encode())


class Http2:
    """One stream at a time, windows that do not run out within a run."""

    def __init__(self, port, path, field='', tls=False):
        self.sock = open_socket(port)
        if tls:
            self.sock = client_tls(['h2']).wrap_socket(self.sock)
        settings = b'\x00\x04' + (2**31 - 1).to_bytes(4, 'big')
        more = (2**31 - 1 - 65535).to_bytes(4, 'big')
        self.sock.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, settings) + frame(8, 0, 0, more))
        # GET and the scheme by number; :path and :authority as literals that are not kept.
        start = b'\x82\x87' if tls else b'\x82\x86'
        self.block = start + b''.join(bytes([k, len(v)]) + v for k, v in ((4, path.encode()), (1, b'localhost')))
        for name, value in (f.lower().split(': ', 1) for f in field.split('\n') if f):
            self.block += b'\0' + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        self.stream, self.text = 1, b''

    def send(self):
        self.sock.sendall(frame(1, 5, self.stream, self.block))

    def receive(self):
        while True:
            kind, flags, stream = self.next()
            if kind in (3, 7):
                raise SystemExit('the stream or the connection was ended')
            if kind == 4 and not flags & 1:
                self.sock.sendall(frame(4, 1, 0, b''))
            if stream == self.stream and kind in (0, 1) and flags & 1:
                self.stream += 2
                return 200

    def next(self):
        while len(self.text) < 9 or len(self.text) < 9 + int.from_bytes(self.text[:3], 'big'):
            data = self.sock.recv(65536)
            if not data:
                raise SystemExit('the connection was closed')
            self.text += data
        end = 9 + int.from_bytes(self.text[:3], 'big')
        head, self.text = self.text[:9], self.text[end:]
        return head[3], head[4], int.from_bytes(head[5:9], 'big')

    def close(self):
        self.sock.close()


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + payload


def open_socket(port):
    sock = socket.create_connection(('127.0.0.1', port), timeout=WAIT_SECS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def client_tls(protocols=()):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context
