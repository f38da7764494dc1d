//! TLS on cosockets, and the sessions with servers that code keeps.

use super::socket::{sock, words_of, Sock};
use crate::crossing::{Answer, Args};
use crate::machine::{code, items, List, OpRow, State};
use crate::run::context::{ANY, WAITING};
use crate::run::{Reply, WaitFor};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::counts::Unverified;
use weir_core::tls::openssl;
use weir_runtime::{clock, timer};
use weir_tls::ciphers;
use weir_tls::rustls::pki_types::PrivateKeyDer;
use weir_tls::rustls::HandshakeKind;
use weir_tls::server::{algorithms, certified};
use weir_tls::x509::chain::{self, ChainError, Purpose, Trust};
use weir_tls::{Channel, TlsError};
use weir_upstream::{Chosen, HandedSession, Show, Wanted};

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("sock_handshake", WAITING, handshake),
    OpRow::any("sock_is_tls", WAITING, |state, args, _| {
        let is_done = |sock: &Sock| {
            !sock.is_unproven && sock.channel().is_some_and(|channel| channel.is_tls())
        };
        match sock(state, args).is_some_and(|sock| is_done(&sock.borrow())) {
            true => code::TRUE,
            false => code::FALSE,
        }
    }),
    OpRow::any("ssl_session_free", ANY, |state, args, _| {
        state.vm.sessions.0.borrow_mut().remove(&(args.id));
        code::TRUE
    }),
];

/// Sessions that Lua has objects of, by their numbers.
#[derive(Default)]
pub(crate) struct Sessions(RefCell<HashMap<u64, Arc<HandedSession>>>);

/// The certificate that is shown: a chain and a key in DER, packed.
fn shown(text: &[u8]) -> Result<Show, &'static str> {
    let [chain, key] = items(text)[..] else { return Ok(Show::Usual) };
    let chain = super::ssl::chain_of(chain).ok_or("ssl set client certificate failed")?;
    let failed = "ssl set client private key failed";
    let key = PrivateKeyDer::try_from(key.to_vec()).map_err(|_| failed)?;
    let pair = certified(chain, key).map_err(|_| failed)?;
    Ok(Show::This(Arc::new(pair)))
}

/// TLS on the connection. `a`: the server's name, `b`: the certificate that is shown; `x`: whether the server's is
/// verified, `y`: the session to go on with. Answers the new session's number, the version, the suite, and whether an
/// earlier session was gone on with.
fn handshake(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    if let Some(busy) = sock.borrow().busy() {
        return answer.fail(busy);
    }
    let Some(channel) = sock.borrow().channel() else { return answer.fail("closed") };
    let timeout = sock.borrow().timeouts().0;
    let Some(site) = state.site() else { return answer.fail("no configuration") };
    let conf = site.conf();
    let Some(wanted) = conf.ssl.wanted_for(args.a) else { return answer.fail("no configuration") };
    let earlier = state.vm.sessions.0.borrow().get(&(args.y as u64)).map(Arc::clone);
    let handed = HandedSession::new(earlier);
    let show = match shown(args.b) {
        Ok(show) => show,
        Err(why) => return answer.fail(why),
    };
    let chosen = Chosen { show, handed: Some(Arc::clone(&handed)) };
    let session = match wanted.session_of(chosen) {
        Ok(session) => session,
        Err(why) => return answer.fail(why),
    };
    let verify = match (args.x != 0.0, *conf.ssl.verify) {
        (false, _) => Verify::Not,
        (true, true) => Verify::By(wanted),
        (true, false) => Verify::Nobody,
    };
    sock.borrow_mut().is_unproven = true;
    let busy = Sock::occupy(sock);
    let vm = Rc::clone(&state.run.vm);
    state.wait(
        WaitFor::Future(Box::pin(async move {
            channel.start(session);
            let done = timer::within_ms(timeout, poll_fn(|cx| channel.poll_handshake(cx))).await;
            handed.end();
            let failed = match done {
                None => "timeout".to_owned(),
                Some(Err(TlsError::Tls(e))) => match openssl::words(&e) {
                    Some(words) => format!("handshake failed\nSSL: {words}"),
                    None => format!("handshake failed\nSSL: {e}"),
                },
                Some(Err(TlsError::Closed)) => "handshake failed\nclosed".to_owned(),
                Some(Err(TlsError::Io(e))) => words_of(&e),
                Some(Ok(())) => match verify.judge(&channel) {
                    Ok(()) => {
                        let id = vm.next();
                        vm.sessions.0.borrow_mut().insert(id, handed);
                        busy.sock.borrow_mut().is_unproven = false;
                        busy.done();
                        return told(id, &channel);
                    }
                    Err(why) => why,
                },
            };
            busy.sock.borrow_mut().drop_line();
            busy.done();
            Reply::fail(failed)
        })),
        answer,
    )
}

fn told(id: u64, channel: &Channel) -> Reply {
    let mut text = Vec::new();
    let mut list = List(&mut text);
    list.number(id as f64);
    if let Some(tls) = channel.tls() {
        tls.with(|tls| {
            let version = tls.protocol_version().and_then(|v| v.as_str()).unwrap_or_default();
            let suite = tls.negotiated_cipher_suite().map(|s| ciphers::name(s.suite()));
            list.text(version.replace('_', ".").as_bytes());
            list.text(suite.unwrap_or_default().as_bytes());
            list.boolean(tls.handshake_kind() == Some(HandshakeKind::Resumed));
        });
    }
    Reply { code: code::LIST, x: 0.0, text }
}

/// By what a server's certificate is judged.
enum Verify {
    Not,
    By(Wanted),
    /// It is to be judged, and nobody is trusted: why it is not.
    Nobody,
}

impl Verify {
    /// An error is in the words that code is told.
    fn judge(&self, channel: &Channel) -> Result<(), String> {
        let wanted = match self {
            Verify::Not => return Ok(()),
            Verify::Nobody => return Err(distrusted(channel)),
            Verify::By(wanted) => wanted,
        };
        match channel.tls().map_or(Ok(()), |tls| wanted.judge(tls)) {
            Ok(()) => Ok(()),
            // Without a name there is none that it could be another's.
            Err((Unverified::OtherHost, _)) if wanted.name.is_empty() => Ok(()),
            Err((Unverified::OtherHost, _)) => Err("certificate host mismatch".to_owned()),
            Err((_, line)) => Err(verdict(&line)),
        }
    }
}

/// What is said of the certificate where nobody is trusted.
fn distrusted(channel: &Channel) -> String {
    let (trust, now) = (Trust::default(), clock::wall_secs());
    let verdict = channel.tls().map(|tls| {
        tls.with(|tls| {
            let chain = tls.peer_certificates().unwrap_or_default();
            chain::verify(chain, &trust, Purpose::Server, now, &algorithms())
        })
    });
    let why = match verdict.and_then(Result::err) {
        // OpenSSL goes on behind its first error only where somebody is trusted.
        None | Some(ChainError::LeafUnverified) => ChainError::NoLocalIssuer,
        Some(why) => why,
    };
    format!("{}: {}", why.number(), why.text())
}

/// `20: unable to get …` of a line that ends in `(20:unable to get …)`.
fn verdict(line: &str) -> String {
    let inner = line.rsplit_once('(').map_or(line, |(_, inner)| inner.trim_end_matches(')'));
    inner.replacen(':', ": ", 1)
}
