//! Logging in to a POP3 server (RFC 1939, section 7).

use super::backend::{Failure, Heard, Known, Next};
use weir_base::line::is_broken;

/// What the server has been told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum State {
    #[default]
    Nothing,
    User,
    Pass,
}

pub(super) fn hear(line: &[u8]) -> Heard {
    match line.starts_with(b"+OK") {
        true => Heard::Good,
        false => Heard::Bad,
    }
}

impl State {
    pub(super) fn next(&mut self, known: &Known<'_>) -> Next {
        let (state, command, text) = match self {
            State::Nothing => (State::User, &b"USER "[..], known.credentials.login.as_slice()),
            State::User => {
                let password = known.credentials.password.as_deref();
                (State::Pass, &b"PASS "[..], password.unwrap_or_default())
            }
            State::Pass => return Next::Join,
        };
        if is_broken(text) {
            return Next::Failed(Failure::LineEndInCredentials);
        }
        *self = state;
        Next::Send([command, text, b"\r\n"].concat())
    }
}
