//! Mail: who answers `auth_http`, servers of POP3, IMAP and SMTP that a proxy logs in to, and a client
//! that speaks in lines.

use std::sync::{Arc, Mutex};

use crate::tls::Tls;
use crate::{expect_soon, Client, Next, Origin, Peer, Request, Server, Setup};

/// A configuration of `mail` whose servers ask `auth`, named `mail.test`; its log tells everything
/// but debugging.
pub fn setup(auth: &Origin, conf: &str) -> Setup {
    let conf = format!(
        "events {{}} mail {{ error_log %%DIR%%/error.log info; server_name mail.test;
            auth_http {}/auth; {conf} }}",
        auth.address()
    );
    Setup::new(&conf)
}

/// Answers each question with the header lines that the script gives, each with its line end.
pub fn auth(script: impl Fn(&Request) -> String + Send + Sync + 'static) -> Origin {
    Origin::start(move |request, conn| {
        conn.write(format!("HTTP/1.0 200 OK\r\n{}\r\n", script(request)));
        Next::Close
    })
}

/// Lets everybody in, to the server of this port.
pub fn auth_to(port: u16) -> Origin {
    auth(move |_| to(port))
}

/// Lets nobody in, but says so at once and lets it be tried again after a second, if `may_retry`.
pub fn auth_none(may_retry: bool) -> Origin {
    let wait = if may_retry { "Auth-Wait: 1\r\n" } else { "" };
    auth(move |_| format!("Auth-Status: no\r\n{wait}"))
}

/// What lets a client in.
pub fn to(port: u16) -> String {
    format!("Auth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: {port}\r\n")
}

/// A port on which connections are refused; it is nobody else's as long as the socket is there.
pub fn refusing() -> (socket2::Socket, u16) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    (socket, port)
}

/// A line of a question; empty if it is not there.
pub fn asked(request: &Request, name: &str) -> String {
    request.header(name).unwrap_or_default().to_owned()
}

pub fn base64(text: &str) -> String {
    let mut out = Vec::new();
    weir_base::base64::encode(&mut out, text.as_bytes());
    String::from_utf8(out).unwrap()
}

#[track_caller]
pub fn from_base64(text: &str) -> String {
    String::from_utf8(weir_base::base64::decode(text.as_bytes()).expect("base64")).unwrap()
}

/// The initial response of PLAIN.
pub fn plain(user: &str, password: &str) -> String {
    base64(&format!("\0{user}\0{password}"))
}

/// A server that is spoken to in lines, and keeps them.
pub struct Backend {
    origin: Origin,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Backend {
    /// Says the greeting, and then to each line what the script makes of it and of the lines before on
    /// the same connection. `None` closes it; what is said has its line ends.
    pub fn start(
        greeting: &str,
        script: impl Fn(&str, &[String]) -> Option<String> + Send + Sync + 'static,
    ) -> Backend {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (greeting, all) = (greeting.to_owned(), Arc::clone(&lines));
        let origin = Origin::start_raw(move |conn, _| {
            conn.write(&greeting);
            let mut before = Vec::new();
            while let Some(line) = conn.read_until(b"\r\n") {
                let line = crate::message::latin1(&line[..line.len() - 2]);
                all.lock().unwrap().push(line.clone());
                let Some(said) = script(&line, &before) else { return };
                conn.write(said);
                before.push(line);
            }
        });
        Backend { origin, lines }
    }

    /// After the login each line is answered with `+OK` and itself.
    pub fn pop3() -> Backend {
        Backend::start("+OK backend\r\n", |line, _| pop3_said(line))
    }

    /// After the login each command is answered with `OK` and itself.
    pub fn imap() -> Backend {
        Backend::start("* OK backend\r\n", imap_said)
    }

    /// Takes mail from everybody.
    pub fn smtp() -> Backend {
        Backend::start("220 backend ESMTP\r\n", smtp_said)
    }

    pub fn port(&self) -> u16 {
        self.origin.port()
    }

    /// The lines of all its connections.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.origin.connections()
    }

    /// Waits until so many have come, and compares.
    #[track_caller]
    pub fn expect(&self, lines: &[&str]) {
        expect_soon("so many lines", || self.lines().len() >= lines.len());
        assert_eq!(self.lines(), lines);
    }
}

/// A server's way to say: nothing to a PROXY header, which comes before all.
pub fn pop3_said(line: &str) -> Option<String> {
    let verb = line.split(' ').next().unwrap_or_default();
    match verb {
        "PROXY" => Some(String::new()),
        "USER" | "PASS" => Some("+OK\r\n".into()),
        "QUIT" => None,
        _ => Some(format!("+OK {line}\r\n")),
    }
}

pub fn imap_said(line: &str, before: &[String]) -> Option<String> {
    let last = before.last().map(String::as_str).unwrap_or_default();
    if line.starts_with("PROXY ") {
        return Some(String::new());
    }
    if line.ends_with('}') {
        return Some("+ go on\r\n".into());
    }
    if last.ends_with('}') {
        let login = before.iter().rev().find(|l| l.contains(" LOGIN {")).expect("a LOGIN");
        return Some(format!("{} OK logged in\r\n", login.split(' ').next().unwrap_or_default()));
    }
    let (tag, rest) = line.split_once(' ').unwrap_or((line, ""));
    (rest != "LOGOUT").then(|| format!("{tag} OK {rest}\r\n"))
}

pub fn smtp_said(line: &str, before: &[String]) -> Option<String> {
    let is_text = before.iter().rev().take_while(|l| *l != ".").any(|l| l == "DATA");
    if is_text {
        return Some(if line == "." { "250 queued\r\n".into() } else { String::new() });
    }
    let verb = line.split(' ').next().unwrap_or_default();
    let said = match verb {
        "PROXY" => "",
        "EHLO" => "250-backend\r\n250-XCLIENT NAME ADDR LOGIN\r\n250 AUTH PLAIN\r\n",
        "XCLIENT" => "220 backend\r\n",
        "AUTH" => "235 backend\r\n",
        "DATA" => "354 go on\r\n",
        "QUIT" => return None,
        _ => return Some(format!("250 {line}\r\n")),
    };
    Some(said.to_owned())
}

/// A client that speaks in lines, and sees each with its line end cut off.
pub struct Line(Client);

impl From<Client> for Line {
    fn from(client: Client) -> Line {
        Line(client)
    }
}

impl Line {
    /// A connection whose greeting has come.
    #[track_caller]
    pub fn greeted(peer: &Peer) -> Line {
        let mut line = Line(peer.connect());
        line.line();
        line
    }

    /// The same on one of the server's ports.
    #[track_caller]
    pub fn on(server: &Server, n: usize) -> Line {
        Line::greeted(&server.on(n))
    }

    pub fn send(&mut self, bytes: &str) {
        self.0.send(bytes.as_bytes());
    }

    /// The next line.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let line = self.0.read_until(b"\r\n");
        crate::message::latin1(&line[..line.len() - 2])
    }

    /// Says a line and reads one.
    #[track_caller]
    pub fn say(&mut self, text: &str) -> String {
        self.send(&format!("{text}\r\n"));
        self.line()
    }

    /// Says a line and reads until one that begins so.
    #[track_caller]
    pub fn say_until(&mut self, text: &str, last: &str) -> Vec<String> {
        let mut lines = vec![self.say(text)];
        while !lines.last().is_some_and(|line| line.starts_with(last)) {
            lines.push(self.line());
        }
        lines
    }

    /// Whether the other side closes without a word more.
    #[track_caller]
    pub fn is_closed(&mut self) -> bool {
        self.0.is_closed()
    }

    /// Begins TLS, where the other side has said that it does.
    #[track_caller]
    pub fn start_tls(self, tls: &Tls) -> Line {
        Line(self.0.start_tls(tls).expect("a handshake"))
    }

    pub fn client(&mut self) -> &mut Client {
        &mut self.0
    }
}
