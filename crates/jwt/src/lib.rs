//! Access by a JSON Web Token: nginx Plus's `ngx_http_auth_jwt_module`.
//!
//! Keys come from files and from subrequests; what was made of a file is kept while the file is the same,
//! what came from a subrequest as long as `auth_jwt_key_cache` says. Keys of a level replace those of the
//! level outside, both kinds together.
//!
//! Not taken: signatures by Ed448, keys encrypted by RSA-OAEP, headers with `crit`, compressed payloads.

mod claims;
mod decrypt;
mod keys;
mod rows;
mod sources;
#[cfg(test)]
mod tests;
mod token;
mod verify;

use std::rc::Rc;
use std::sync::Arc;

use weir_base::bytes::strip_prefix_ignore_case;
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_http::client_watch::unless_client_goes;
use weir_http::credentials;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::Request;
use weir_module::SlotVtable;
use weir_runtime::clock;

use keys::KeySet;
use rows::{JwtLoc, JwtMain};
use sources::{Failed, Source, Turn};
use token::Token;

pub const MODULE: HttpModule = HttpModule {
    rows: rows::ROWS,
    slots: &[SlotVtable::of::<JwtMain>(), SlotVtable::of::<JwtLoc>()],
    variables: claims::VARIABLES,
    build: Some(rows::check),
    phases: &[
        PhaseHandler { phase: Phase::Access, handler, active: rows::active },
        PhaseHandler { phase: Phase::Precontent, handler: settle, active: rows::active },
    ],
    ..HttpModule::EMPTY
};

/// What the token says: before the access phase whether it holds or not, from then on only if it does.
enum Held {
    Unchecked(Option<Token>),
    Checked(Option<Token>),
}

impl Held {
    fn token(&self) -> Option<&Token> {
        let (Held::Unchecked(token) | Held::Checked(token)) = self;
        token.as_ref()
    }
}

/// What a token says before it is checked: limits go by it. It is looked at once.
fn look(r: &mut Request) {
    // Also the end of a token that is to be found by what it says.
    r.keep_state(Held::Unchecked(None));
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<JwtLoc>();
    let Some(realm) = &*conf.realm else { return };
    let can_be_read = *conf.kind == token::Kind::Signed || r.is_part();
    if !can_be_read || r.eval(realm) == b"off" {
        return;
    }
    let Some(text) = token_of(r, conf) else { return };
    let held = match r.is_part() {
        true => Held::Checked(checked_now(r, conf, &text)),
        false => Held::Unchecked(token::unchecked(&text)),
    };
    r.keep_state(held);
}

/// A part goes through no access phase: the main request was let in, which need not have been by this token.
fn checked_now(r: &mut Request, conf: &JwtLoc, text: &[u8]) -> Option<Token> {
    let sets: Option<Vec<_>> = sources::at_hand(r, conf).ok()?.into_iter().collect();
    check(text, conf, &sets?).ok()
}

/// Who was let in by something else (`satisfy any`) has no token that holds.
fn settle(r: &mut Request) -> Flow {
    if !r.is_part() && !matches!(r.kept::<Held>(), Some(Held::Checked(_))) {
        r.keep_state(Held::Checked(None));
    }
    Flow::Declined
}

fn handler(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<JwtLoc>();
    let Some(realm) = &*conf.realm else { return Flow::Declined };
    let realm = r.eval(realm);
    if realm == b"off" {
        return Flow::Declined;
    }
    r.keep_state(Held::Checked(None));
    let Some(text) = token_of(r, conf) else {
        r.log(LogLevel::Info, "no JWT was provided");
        return ask(r, &realm, false);
    };
    let found = match sources::at_hand(r, conf) {
        Ok(found) => found,
        Err(Failed(status)) => return Flow::Status(status),
    };
    if found.iter().all(Option::is_some) {
        let sets: Vec<_> = found.into_iter().flatten().collect();
        return decide(r, conf, &text, &sets, &realm);
    }
    r.set_ctx(Asking { text, realm, found });
    Flow::Wait(fetch)
}

/// A token whose keys are asked for.
struct Asking {
    text: Vec<u8>,
    realm: Vec<u8>,
    /// A set for each source; `None`: it is asked for.
    found: Vec<Option<Arc<KeySet>>>,
}

fn fetch(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let Some(asking) = r.take_ctx::<Asking>() else { return Flow::Status(500) };
        let loc = Rc::clone(r.loc());
        let conf = loc.conf::<JwtLoc>();
        let Asking { text, realm, found } = *asking;
        match all_sets(r, conf, found).await {
            Ok(sets) => decide(r, conf, &text, &sets, &realm),
            Err(Failed(status)) => Flow::Status(status),
        }
    })
}

async fn all_sets(
    r: &mut Request,
    conf: &JwtLoc,
    found: Vec<Option<Arc<KeySet>>>,
) -> Result<Vec<Arc<KeySet>>, Failed> {
    let mut sets = Vec::with_capacity(found.len());
    for (source, set) in conf.sources.iter().zip(found) {
        let set = match set {
            Some(set) => set,
            None => match keys_of(r, conf, source).await {
                Ok(set) => set,
                Err(failed) => {
                    sources::give_up(r, conf, source, &failed);
                    return Err(failed);
                }
            },
        };
        sets.push(set);
    }
    Ok(sets)
}

/// Asks for keys. Where they are kept one request does for all that wait for the same.
async fn keys_of(r: &mut Request, conf: &JwtLoc, source: &Source) -> Result<Arc<KeySet>, Failed> {
    if *conf.cache_msec == 0 {
        return ask_for(r, conf, source).await;
    }
    let name = sources::name(r, source)?;
    loop {
        let mut outcome = match conf.cache.join(&name) {
            Turn::Mine(turn) => {
                // Meanwhile another may have.
                let asked = match conf.cache.fresh(&name, *conf.cache_msec) {
                    Some(keys) => Ok(keys),
                    None => ask_for(r, conf, source).await,
                };
                // Where only the client has gone another asks.
                if !matches!(asked, Err(Failed(499))) {
                    turn.tell(&asked);
                }
                return asked;
            }
            Turn::Others(outcome) => outcome,
        };
        let told = async {
            let told = outcome.wait_for(Option::is_some).await;
            told.ok().and_then(|told| told.clone())
        };
        match unless_client_goes(r, false, told).await {
            None => return Err(Failed(499)),
            Some(Some(asked)) => return asked.map_err(Failed),
            Some(None) => {}
        }
    }
}

async fn ask_for(r: &mut Request, conf: &JwtLoc, source: &Source) -> Result<Arc<KeySet>, Failed> {
    let mut part = sources::part(r, source)?;
    let run = weir_http::subrequest::run(&mut part);
    if unless_client_goes(r, false, run).await.is_none() {
        return Err(Failed(499));
    }
    sources::taken(r, conf, source, part)
}

fn token_of(r: &mut Request, conf: &JwtLoc) -> Option<Vec<u8>> {
    let text = match &*conf.token {
        Some(template) => r.eval(template),
        None => {
            let value = r.header(credentials::field(r))?;
            strip_prefix_ignore_case(value, b"Bearer ")?.trim_ascii().to_vec()
        }
    };
    (!text.is_empty()).then_some(text)
}

fn check(text: &[u8], conf: &JwtLoc, sets: &[Arc<KeySet>]) -> Result<Token, String> {
    let token = token::check(text, *conf.kind, sets)?;
    claims::check_times(&token.claims, clock::wall_secs(), *conf.leeway_msec)?;
    Ok(token)
}

fn decide(r: &mut Request, conf: &JwtLoc, text: &[u8], sets: &[Arc<KeySet>], realm: &[u8]) -> Flow {
    match check(text, conf, sets) {
        Ok(token) => r.keep_state(Held::Checked(Some(token))),
        Err(why) => {
            r.log(LogLevel::Info, &format!("JWT is refused: {why}"));
            return ask(r, realm, true);
        }
    }
    for required in conf.required.iter() {
        if !required.values.iter().all(|value| r.is_true(value)) {
            r.log(LogLevel::Info, "JWT is refused by auth_jwt_require");
            return match required.status {
                401 => ask(r, realm, true),
                status => Flow::Status(status),
            };
        }
    }
    Flow::Ok
}

/// The challenge (RFC 6750, section 3).
fn ask(r: &mut Request, realm: &[u8], is_invalid: bool) -> Flow {
    let error: &[u8] = if is_invalid { b",error=\"invalid_token\"" } else { b"" };
    let value = [b"Bearer realm=\"", realm, b"\"", error].concat();
    let (field, status) = credentials::challenge(r);
    r.out.set(field, &value);
    Flow::Status(status)
}
