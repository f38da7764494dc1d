//! `auth_basic` (nginx's `ngx_http_auth_basic_module`).
//!
//! Differences from nginx: hashes that are slow on purpose (bcrypt, SHA-crypt) are computed beside
//! the workers and not in them, by few threads (`queue`): the request waits for its client's turn, is
//! answered with 503 when 256 wait already, and is left out when its client goes; the password kinds are the same on every
//! system: `{PLAIN}`, `{SHA}`, `{SSHA}`, `$apr1$`, `$1$`, `$5$`, `$6$`, `$2a$`, `$2b$`, `$2y$`. The old DES
//! hash and yescrypt fit no password, and the error log says so.

mod password;
mod queue;

use std::rc::Rc;
use weir_core::Session;

use password::Kind;
use weir_conf::messages::os_error;
use weir_core::eval::with_value;
use weir_core::logger::LogLevel;
use weir_core::LocalFuture;
use weir_http::client_watch::unless_client_goes;
use weir_http::credentials;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::vars::{template, template_of};
use weir_http::Request;
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
    Slots, Val,
};
use weir_runtime::paths;
use weir_script::template::Template;

#[derive(Default)]
struct AuthLoc {
    realm: Val<Option<Template>>,
    file: Val<Option<UserFile>>,
}

#[derive(Clone)]
struct UserFile {
    /// In front of a name that is relative when it has been computed.
    prefix: Vec<u8>,
    name: Template,
}

impl ConfType for AuthLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &AuthLoc) -> ConfResult {
        self.realm.merge(&parent.realm, || None);
        self.file.merge(&parent.file, || None);
        Ok(())
    }
}

const CONTEXTS: Context = Context::HSL.or(Context::LMT);

const ROWS: &[Row] = &[
    Row::new(
        "auth_basic",
        CONTEXTS,
        Arity::ONE,
        "off",
        "Asks for a user and a password, for a realm.",
        set_realm,
    ),
    Row::new(
        "auth_basic_user_file",
        CONTEXTS,
        Arity::ONE,
        "",
        "The file with users and password hashes.",
        set_file,
    )
    .note(
        "bcrypt and SHA-crypt are computed by threads (half of the processors, at most 8); when 256 \
         passwords wait, further requests of the client with most of them are answered with 503, and \
         clients (an IPv4 address, a /64 of IPv6) take turns. DES and yescrypt hashes fit no password.",
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<AuthLoc>()],
    phases: &[PhaseHandler { phase: Phase::Access, handler, active }],
    lets_in: Some(may_be_off),
    ..HttpModule::EMPTY
};

fn set_realm(cf: &mut Cf, d: &Directive) -> ConfResult {
    let realm = template(cf, d, 0)?;
    cf.get::<AuthLoc>().realm.once(d, Some(realm))
}

fn set_file(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut prefix = paths::bytes(&cf.conf_prefix).to_vec();
    if prefix.last().is_some_and(|b| *b != b'/') {
        prefix.push(b'/');
    }
    let name = template_of(cf, d, 0, d.arg(0))?;
    cf.get::<AuthLoc>().file.once(d, Some(UserFile { prefix, name }))
}

fn active(slots: &Slots) -> bool {
    let conf = slots.get::<AuthLoc>();
    let is_off = |t: &Template| t.as_constant() == Some(b"off");
    conf.file.is_some() && conf.realm.as_ref().is_some_and(|realm| !is_off(realm))
}

/// A realm that is known only with a request may be `off`.
fn may_be_off(slots: &Slots) -> bool {
    slots.get::<AuthLoc>().realm.as_ref().is_none_or(|realm| realm.as_constant().is_none())
}

/// A password that is being checked beside the worker.
struct Checking {
    user: Vec<u8>,
    password: Vec<u8>,
    hash: Vec<u8>,
    realm: Vec<u8>,
}

fn handler(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<AuthLoc>();
    let (Some(realm), Some(file)) = (&*conf.realm, &*conf.file) else { return Flow::Declined };
    let realm = r.eval(realm);
    if realm == b"off" {
        return Flow::Declined;
    }
    let credentials = r.header(credentials::field(r)).and_then(credentials::basic);
    let Some((user, password)) = credentials else {
        r.log(LogLevel::Info, "no user/password was provided for basic authentication");
        return ask(r, &realm);
    };
    let path = with_value(r, &file.name, |_, name| match paths::is_whole(name) {
        true => name.to_vec(),
        false => [&file.prefix, name].concat(),
    });
    let hash = match find(r, &path, &user) {
        Ok(Some(hash)) => hash,
        Ok(None) => {
            let (user, path) = (String::from_utf8_lossy(&user), String::from_utf8_lossy(&path));
            r.log(LogLevel::Error, &format!("user \"{user}\" was not found in \"{path}\""));
            return ask(r, &realm);
        }
        Err(status) => return Flow::Status(status),
    };
    let Some(kind) = Kind::of(&hash) else {
        // To the client it is a wrong password: who has a locked account is nobody's business.
        let (user, path) = (String::from_utf8_lossy(&user), String::from_utf8_lossy(&path));
        let text = format!(
            "user \"{user}\" in \"{path}\": the kind of password hash is not supported; if the account is \
             not locked, make it anew with \"openssl passwd -6\" or \"htpasswd -B\""
        );
        r.log(LogLevel::Error, &text);
        return ask(r, &realm);
    };
    if kind.is_slow() {
        r.set_ctx(Checking { user, password, hash, realm });
        return Flow::Wait(check_beside);
    }
    let right = kind.verify(&password, &hash);
    decide(r, right, &user, &realm)
}

fn check_beside(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let Some(checking) = r.take_ctx::<Checking>() else { return Flow::Status(500) };
        let Checking { user, password, hash, realm } = *checking;
        let work = move || Kind::of(&hash).is_some_and(|kind| kind.verify(&password, &hash));
        let client = queue::Client::of(r.client().ip());
        let Some(answer) = queue::submit(client, work) else {
            return too_many(r);
        };
        match unless_client_goes(r, false, answer).await {
            Some(Ok(Err(queue::PushedOut))) => too_many(r),
            Some(Ok(Ok(right))) => decide(r, right, &user, &realm),
            Some(Err(_)) => {
                r.log(LogLevel::Alert, "checking a password failed");
                Flow::Status(500)
            }
            None => {
                r.log(LogLevel::Info, "client prematurely closed connection");
                Flow::Status(499)
            }
        }
    })
}

fn too_many(r: &Request) -> Flow {
    let text = format!("more than {} passwords wait to be checked", queue::WAITING_MAX);
    r.log(LogLevel::Error, &text);
    Flow::Status(503)
}

fn decide(r: &mut Request, right: bool, user: &[u8], realm: &[u8]) -> Flow {
    if right {
        return Flow::Ok;
    }
    let user = String::from_utf8_lossy(user);
    r.log(LogLevel::Error, &format!("user \"{user}\": password mismatch"));
    ask(r, realm)
}

fn ask(r: &mut Request, realm: &[u8]) -> Flow {
    let value = [b"Basic realm=\"", realm, b"\""].concat();
    let (field, status) = credentials::challenge(r);
    r.out.set(field, &value);
    Flow::Status(status)
}

/// The user's hash out of the file; an error is the status to answer with.
fn find(r: &Request, path: &[u8], user: &[u8]) -> Result<Option<Vec<u8>>, u16> {
    let name = paths::path(path);
    match std::fs::read(&name) {
        Ok(text) => Ok(hash_of(&text, user).map(<[u8]>::to_vec)),
        Err(e) => {
            let missing = e.kind() == std::io::ErrorKind::NotFound;
            let (level, status) =
                if missing { (LogLevel::Error, 403) } else { (LogLevel::Crit, 500) };
            r.log(level, &format!("open() \"{}\" failed ({})", name.display(), os_error(&e)));
            Err(status)
        }
    }
}

/// Lines are `user:hash`, with more fields behind a further colon; `#` begins a comment, and what begins
/// with a carriage return is no user's either.
fn hash_of<'t>(text: &'t [u8], user: &[u8]) -> Option<&'t [u8]> {
    let is_user = |line: &&[u8]| !matches!(line.first(), Some(b'#' | b'\r'));
    text.split(|b| *b == b'\n').filter(is_user).find_map(|line| {
        let rest = line.strip_prefix(user)?.strip_prefix(b":")?;
        let end = rest.iter().position(|b| matches!(b, b'\r' | b':'));
        Some(&rest[..end.unwrap_or(rest.len())])
    })
}

#[cfg(test)]
mod tests {
    use super::hash_of;

    #[test]
    fn files() {
        let text = b"#a:no\n\rd:no\na:1:more\nab:2\r\nb:\nc:last";
        assert_eq!(hash_of(text, b"a"), Some(&b"1"[..]));
        assert_eq!(hash_of(text, b"ab"), Some(&b"2"[..]));
        assert_eq!(hash_of(text, b"b"), Some(&b""[..]));
        assert_eq!(hash_of(text, b"c"), Some(&b"last"[..]));
        assert_eq!(hash_of(text, b"d"), None);
        assert_eq!(hash_of(text, b"#a"), None);
        assert_eq!(hash_of(text, b"\rd"), None);
    }
}
