//! The directives.

use std::sync::Arc;

use weir_conf::Position;
use weir_http::module::Build;
use weir_http::vars::{define, template, template_of};
use weir_module::{
    distinct, merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Diagnostic,
    Directive, Level, Row, Slots, Val,
};
use weir_runtime::paths;
use weir_script::template::Template;

use crate::claims;
use crate::sources::{Cache, Source};
use crate::token::Kind;

/// Paths of claims and header fields that variables were made for.
#[derive(Default)]
pub struct JwtMain {
    pub names: Vec<Vec<Vec<u8>>>,
}

impl ConfType for JwtMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// Values of which none may be empty or `0`, or the request ends with the status.
pub struct Required {
    pub values: Vec<Template>,
    pub status: u16,
}

#[derive(Default)]
pub struct JwtLoc {
    pub realm: Val<Option<Template>>,
    /// Where that is said.
    pub at: Option<Position>,
    pub token: Val<Option<Template>>,
    pub kind: Val<Kind>,
    pub leeway_msec: Val<u64>,
    /// How long keys are used without a look at where they are from; 0: not at all.
    pub cache_msec: Val<u64>,
    pub sources: Val<Arc<Vec<Source>>>,
    pub required: Val<Arc<Vec<Required>>>,
    pub cache: Arc<Cache>,
}

impl ConfType for JwtLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &JwtLoc) -> ConfResult {
        if !self.realm.is_set() {
            self.at = parent.at;
            self.token.merge(&parent.token, || None);
        }
        merge_values!(self, parent;
            realm = None,
            kind = Kind::Signed,
            leeway_msec = 0,
            cache_msec = 0,
            sources = Arc::default(),
            required = Arc::default(),
        );
        if !self.token.is_set() {
            self.token.set(None);
        }
        Ok(())
    }
}

const CONTEXTS: Context = Context::HSL.or(Context::LMT);

pub const ROWS: &[Row] = &[
    Row::new(
        "auth_jwt",
        CONTEXTS,
        Arity::ONE_TWO,
        "off",
        "Grants access to who has a JSON Web Token that holds, for a realm; token= says where it is.",
        set_realm,
    )
    .note(
        "Signatures: HS, RS, PS and ES with 256, 384 and 512, EdDSA with Ed25519. Encryption: all that nginx Plus \
         has but RSA-OAEP. Before the access phase (limit_req, limit_conn, if) a signed token's claims are what it says, \
         unchecked, as in nginx Plus; afterwards they are those of a token that held, or none. Ed448 and RSA-OAEP are not taken: keys for them fit no token.",
    ),
    Row::new(
        "auth_jwt_claim_set",
        Context::HTTP,
        Arity::TWO_MORE,
        "",
        "Makes a variable of a token's claim; further names lead into objects.",
        |cf, d| set_variable(cf, d, claims::claim_at),
    ),
    Row::new(
        "auth_jwt_header_set",
        Context::HTTP,
        Arity::TWO_MORE,
        "",
        "Makes a variable of a field of a token's header; further names lead into objects.",
        |cf, d| set_variable(cf, d, claims::header_at),
    ),
    Row::new(
        "auth_jwt_key_file",
        CONTEXTS,
        Arity::ONE,
        "",
        "A file with a set of keys (JWKS).",
        |cf, d| {
            let mut prefix = paths::bytes(&cf.conf_prefix).to_vec();
            if prefix.last().is_some_and(|b| *b != b'/') {
                prefix.push(b'/');
            }
            let name = template_of(cf, d, 0, d.arg(0))?;
            add_source(cf, Source::File { prefix, name });
            Ok(())
        },
    ),
    Row::new(
        "auth_jwt_key_request",
        CONTEXTS,
        Arity::ONE,
        "",
        "Where a subrequest goes that is answered with a set of keys (JWKS).",
        |cf, d| {
            let uri = template(cf, d, 0)?;
            add_source(cf, Source::Request { uri });
            Ok(())
        },
    ),
    Row::new(
        "auth_jwt_key_cache",
        Context::HSL,
        Arity::ONE,
        "off",
        "How long keys are used without reading their file or asking for them again.",
        |cf, d| {
            let msec = match d.arg(0) {
                b"off" => 0,
                _ => d.msec(0)?,
            };
            cf.get::<JwtLoc>().cache_msec.once(d, msec)
        },
    )
    .note(
        "keys that a subrequest was answered with are those of its URI, the host and the port. What the answer depends on \
         beside these (a header field, say) belongs into the URI, as an argument.",
    ),
    Row::new(
        "auth_jwt_leeway",
        Context::HSL,
        Arity::ONE,
        "0s",
        "By how much the clock of who made a token may differ, for exp and nbf.",
        |cf, d| {
            let msec = d.msec(0)?;
            cf.get::<JwtLoc>().leeway_msec.once(d, msec)
        },
    ),
    Row::new(
        "auth_jwt_type",
        CONTEXTS,
        Arity::ONE,
        "signed",
        "What a token is: signed, encrypted, or nested (a signed one that is encrypted).",
        |cf, d| {
            let kinds =
                [("signed", Kind::Signed), ("encrypted", Kind::Encrypted), ("nested", Kind::Nested)];
            let kind = d.choice(0, &kinds)?;
            cf.get::<JwtLoc>().kind.once(d, kind)
        },
    ),
    Row::new(
        "auth_jwt_require",
        CONTEXTS,
        Arity::ONE_MORE,
        "",
        "Values of which none may be empty or 0 once a token holds; error= 401 or 403 otherwise.",
        set_required,
    )
    .note("A claim that is false is the text \"false\", which is neither: compare it in a map."),
];

/// Who has no keys where tokens are asked for is told when the configuration is read. A level whose locations have
/// them may be these locations' default alone, and is nothing to warn of.
pub fn check(b: &mut Build) -> ConfResult {
    let all: Vec<_> = distinct::<JwtLoc>(b.locations).into_iter().filter(|c| c.is_on()).collect();
    let (have, lack): (Vec<&JwtLoc>, _) = all.into_iter().partition(|c| !c.sources.is_empty());
    let mut places = Vec::new();
    for at in lack.iter().filter_map(|conf| conf.at) {
        if places.contains(&at) || have.iter().any(|conf| conf.at == Some(at)) {
            continue;
        }
        places.push(at);
        let hint = "add auth_jwt_key_file or auth_jwt_key_request here or in a block around it: every request \
                    is answered with 500";
        let told = Diagnostic::warn("\"auth_jwt\" has no keys".to_string()).hint(hint.to_string());
        b.cf.warnings.push(told.at(at));
    }
    Ok(())
}

pub fn active(slots: &Slots) -> bool {
    slots.get::<JwtLoc>().is_on()
}

impl JwtLoc {
    fn is_on(&self) -> bool {
        self.realm.as_ref().is_some_and(|realm| realm.as_constant() != Some(b"off"))
    }
}

fn set_realm(cf: &mut Cf, d: &Directive) -> ConfResult {
    let realm = template(cf, d, 0)?;
    let token = match d.args.len() {
        1 => None,
        _ => {
            let Some(text) = d.keyed(1, "token").map(<[u8]>::to_vec) else {
                return Err(d.invalid(1));
            };
            if !text.starts_with(b"$") {
                let e = d.bad(1, "\"token\" must be a variable");
                return Err(
                    e.hint("write \"token=$cookie_NAME\" or \"token=$arg_NAME\"".to_string())
                );
            }
            Some(template_of(cf, d, 1, &text)?)
        }
    };
    cf.get::<JwtLoc>().realm.once(d, Some(realm))?;
    cf.get::<JwtLoc>().at = Some(d.position());
    cf.get::<JwtLoc>().token.set(token);
    Ok(())
}

fn set_variable(cf: &mut Cf, d: &Directive, get: weir_http::module::Getter) -> ConfResult {
    let path = (1..d.args.len()).map(|i| d.arg(i).to_vec()).collect();
    let names = &mut cf.get::<JwtMain>().names;
    names.push(path);
    let n = names.len() - 1;
    define(cf, d, 0, get, n, false).map(|_| ())
}

fn add_source(cf: &mut Cf, source: Source) {
    push(&mut cf.get::<JwtLoc>().sources, source);
}

fn push<T>(list: &mut Val<Arc<Vec<T>>>, value: T) {
    if !list.is_set() {
        list.set(Arc::default());
    }
    if let Some(list) = list.as_mut().and_then(Arc::get_mut) {
        list.push(value);
    }
}

fn set_required(cf: &mut Cf, d: &Directive) -> ConfResult {
    let (mut values, mut status) = (Vec::new(), 401);
    for i in 0..d.args.len() {
        match d.keyed(i, "error") {
            Some(b"401") => status = 401,
            Some(b"403") => status = 403,
            Some(_) => return Err(d.bad(i, "\"error\" must be 401 or 403")),
            None => values.push(template(cf, d, i)?),
        }
    }
    if values.is_empty() {
        return Err(d.fail("no value is required".to_string()));
    }
    push(&mut cf.get::<JwtLoc>().required, Required { values, status });
    Ok(())
}
