//! The directives that every backend has, once: each row is still the only source of its directive.

use crate::bits::{ignore, next};
use crate::conf::{BackendConf, BackendLoc, Words};
use crate::target::{Fixed, Parts, Pass};
use std::marker::PhantomData;
use std::sync::Arc;
use weir_base::addr::parse_endpoint;
use weir_core::paths::temp_path;
use weir_http::build::here;
use weir_http::conf::CoreLoc;
use weir_http::vars::template;
use weir_http::Request;
use weir_module::{name, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, Val};
use weir_script::template::Template;
use weir_upstream::{Outgoing, Secures, SslRows, UpstreamMain};

const HSL: Context = Context::HSL;

pub(crate) const PASS: Context = Context::LOCATION.or(Context::LIF).or(Context::LMT);

/// Finds a family's configuration at the current level.
pub(crate) type Pick = fn(&mut Cf) -> &mut BackendLoc;

/// The rows that families share, for one of them; each subject in the file it belongs to.
pub(crate) struct Rows<T>(PhantomData<T>);

/// A family's TLS to servers.
pub(crate) struct Tls<T>(PhantomData<T>);

impl<T: BackendConf> Secures for Tls<T> {
    type Session = Request;
    const PREFIX: &'static str = T::PREFIX;
    const LEVELS: Context = Context::HSL;
    const TLS_NAME: &'static str = T::TLS_NAME;

    fn outgoing(cf: &mut Cf) -> &mut Outgoing {
        &mut pick::<T>(cf).tls
    }
}

impl<T: BackendConf> Rows<T> {
    /// For a family that can speak TLS.
    pub(crate) const SSL: &'static [Row] = SslRows::<Tls<T>>::ROWS;
}

pub(crate) fn pick<T: BackendConf>(cf: &mut Cf) -> &mut BackendLoc {
    cf.get::<T>().backend_mut()
}

macro_rules! set {
    ($f:path) => {
        |cf, d| $f(cf, d, pick::<T>)
    };
}

impl<T: BackendConf> Rows<T> {
    /// About the servers and the connections to them: every family has these.
    pub(crate) const PEER: &'static [Row] = &[
        Row::new(name!("bind"), HSL, Arity::ONE_TWO, "", "The local address of connections.", set!(set_bind))
            .note("transparent under another user than root takes a restart, where a reload is the first to bring it"),
        Row::new(name!("socket_keepalive"), HSL, Arity::FLAG, "off", "TCP keepalive to the server.", set!(set_socket_keepalive)),
        Row::new(name!("connect_timeout"), HSL, Arity::ONE, "60s", "Longest time to connect.", set!(set_connect_timeout)),
        Row::new(name!("send_timeout"), HSL, Arity::ONE, "60s", "Longest time between two writes.", set!(set_send_timeout)),
        Row::new(name!("read_timeout"), HSL, Arity::ONE, "60s", "Longest time between two reads.", set!(set_read_timeout)),
        Row::new(name!("buffer_size"), HSL, Arity::ONE, "4k|8k", "The longest header of an answer.", set!(set_buffer_size)),
        Row::new(name!("next_upstream"), HSL, Arity::ONE_MORE, "error timeout", "When the next server is asked.", |cf, d| {
            set_next_upstream(cf, d, T::NEXT, pick::<T>)
        })
        .note("what a server has answered before it closed is taken, though sending the request to it failed"),
        Row::new(name!("next_upstream_tries"), HSL, Arity::ONE, "0", "Most servers asked for one request.", set!(set_tries)),
        Row::new(name!("next_upstream_timeout"), HSL, Arity::ONE, "0", "Longest time for asking servers.", set!(set_next_timeout)),
    ];

    /// About what comes and goes in headers: every family that has headers.
    pub(crate) const HEADER: &'static [Row] = &[
        Row::new(
            name!("socket_rcvbuf"),
            HSL,
            Arity::ONE,
            "0",
            "Receive buffer of the socket.",
            set!(set_rcvbuf),
        ),
        Row::new(
            name!("socket_sndbuf"),
            HSL,
            Arity::ONE,
            "0",
            "Send buffer of the socket.",
            set!(set_sndbuf),
        ),
        Row::new(
            name!("intercept_errors"),
            HSL,
            Arity::FLAG,
            "off",
            "error_page for the server's errors.",
            set!(set_intercept),
        ),
        Row::new(
            name!("pass_header"),
            HSL,
            Arity::ONE,
            "",
            "A hidden field that is passed.",
            set!(set_pass_header),
        ),
        Row::new(
            name!("hide_header"),
            HSL,
            Arity::ONE,
            "",
            "A field that is not passed.",
            set!(set_hide_header),
        ),
        Row::new(
            name!("ignore_headers"),
            HSL,
            Arity::ONE_MORE,
            "",
            "Fields of the server that do nothing here.",
            |cf, d| set_ignore_headers(cf, d, IGNORE, pick::<T>),
        ),
    ];

    /// About bodies and what is kept of them on their way.
    pub(crate) const BUFFER: &'static [Row] = &[
        Row::new(
            name!("buffering"),
            HSL,
            Arity::FLAG,
            "on",
            "Reads an answer ahead of a slow client.",
            set!(set_buffering),
        )
        .note("on: what the server has sent is passed on before more is waited for, whatever the \
               body's framing; what gzip holds, and a head without a body, after 10 ms"),
        Row::new(
            name!("request_buffering"),
            HSL,
            Arity::FLAG,
            "on",
            "Reads a whole request before passing it.",
            set!(set_request_buffering),
        ),
        Row::new(
            name!("ignore_client_abort"),
            HSL,
            Arity::FLAG,
            "off",
            "Lets the server finish when the client goes.",
            set!(set_ignore_abort),
        ),
        Row::new(
            name!("pass_request_headers"),
            HSL,
            Arity::FLAG,
            "on",
            "Passes the client's header.",
            set!(set_pass_headers),
        ),
        Row::new(
            name!("pass_request_body"),
            HSL,
            Arity::FLAG,
            "on",
            "Passes the client's body.",
            set!(set_pass_body),
        )
        .note("off: no Content-Length is sent for the body that is not"),
        Row::new(
            name!("buffers"),
            HSL,
            Arity::TWO,
            "8 4k|8k",
            "Memory for an answer the client is slow to take.",
            set!(set_buffers),
        ),
        Row::new(
            name!("busy_buffers_size"),
            HSL,
            Arity::ONE,
            "8k|16k",
            "Part of the buffers being sent.",
            set!(set_busy),
        )
        .note("checked; all that is read may be sent at once here"),
        Row::new(
            name!("force_ranges"),
            HSL,
            Arity::FLAG,
            "off",
            "Byte ranges whatever the server says.",
            set!(set_force_ranges),
        ),
        Row::new(
            name!("limit_rate"),
            HSL,
            Arity::ONE,
            "0",
            "Bytes a second read from the server.",
            set!(set_limit_rate),
        )
        .note("each second's worth is read at once and the last is not followed by a pause, so that an answer \
            is complete up to a second earlier than nginx's"),
        Row::new(
            name!("temp_path"),
            HSL,
            Arity::ONE_TO_FOUR,
            name!("temp"),
            "Directory for answers too large for memory.",
            set!(set_temp_path),
        ),
        Row::new(
            name!("max_temp_file_size"),
            HSL,
            Arity::ONE,
            "1024m",
            "The largest temporary file.",
            set!(set_max_temp),
        ),
        Row::new(
            name!("temp_file_write_size"),
            HSL,
            Arity::ONE,
            "8k|16k",
            "Most written to it at once.",
            set!(set_temp_write),
        ),
    ];
}

macro_rules! simple {
    ($($name:ident $field:ident $read:expr;)*) => {
        $(pub(crate) fn $name(cf: &mut Cf, d: &Directive, pick: Pick) -> ConfResult {
            let v = $read(d)?;
            pick(cf).$field.once(d, v)
        })*
    };
}

fn flag(d: &Directive) -> ConfResult<bool> {
    d.flag()
}

fn msec(d: &Directive) -> ConfResult<u64> {
    d.msec(0)
}

fn size(d: &Directive) -> ConfResult<u64> {
    d.size(0)
}

fn some_size(d: &Directive) -> ConfResult<Option<u64>> {
    d.size(0).map(Some)
}

simple! {
    set_socket_keepalive socket_keepalive flag;
    set_rcvbuf socket_rcvbuf size;
    set_sndbuf socket_sndbuf size;
    set_connect_timeout connect_timeout msec;
    set_send_timeout send_timeout msec;
    set_read_timeout read_timeout msec;
    set_buffer_size buffer_size size;
    set_tries next_upstream_tries (|d: &Directive| d.num(0));
    set_next_timeout next_upstream_timeout msec;
    set_intercept intercept_errors flag;
    set_buffering buffering flag;
    set_request_buffering request_buffering flag;
    set_ignore_abort ignore_client_abort flag;
    set_pass_headers pass_request_headers flag;
    set_pass_body pass_request_body flag;
    set_busy busy_buffers_size some_size;
    set_force_ranges force_ranges flag;
    set_max_temp max_temp_file_size some_size;
    set_temp_write temp_file_write_size some_size;
}

pub(crate) fn shared(cf: &mut Cf, d: &Directive) -> ConfResult<Arc<Template>> {
    template(cf, d, 0).map(Arc::new)
}

pub(crate) fn set_buffers(cf: &mut Cf, d: &Directive, pick: Pick) -> ConfResult {
    let num = d.num(0)?;
    let each = d.size(1)?;
    if num == 0 || each == 0 {
        return Err(d.invalid(0));
    }
    pick(cf).buffers.once(d, (num, each))
}

pub(crate) fn set_limit_rate(cf: &mut Cf, d: &Directive, pick: Pick) -> ConfResult {
    let v = shared(cf, d)?;
    if let Some(text) = v.as_constant() {
        weir_base::units::parse_size(text).ok_or_else(|| d.invalid(0))?;
    }
    pick(cf).limit_rate.once(d, Some(v))
}

pub(crate) fn set_temp_path(cf: &mut Cf, d: &Directive, pick: Pick) -> ConfResult {
    let v = temp_path(cf, d)?;
    pick(cf).temp_path.once(d, v)
}

pub(crate) fn set_pass_header(cf: &mut Cf, d: &Directive, pick: Pick) -> ConfResult {
    push(&mut pick(cf).pass_headers, d.arg(0).to_vec());
    Ok(())
}

pub(crate) fn set_hide_header(cf: &mut Cf, d: &Directive, pick: Pick) -> ConfResult {
    push(&mut pick(cf).hide_headers, d.arg(0).to_vec());
    Ok(())
}

/// Appends to a list of this level.
pub(crate) fn push<T: Clone>(list: &mut Val<Arc<Vec<T>>>, item: T) {
    if !list.is_set() {
        list.set(Arc::default());
    }
    if let Some(l) = list.as_mut() {
        Arc::make_mut(l).push(item);
    }
}

/// `…_pass`: the location's content comes from there.
pub(crate) fn set_pass<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    if pick::<T>(cf).pass.is_some() {
        return Err(d.error("is duplicate"));
    }
    let is_directory = here(cf).name.last() == Some(&b'/');
    let core = cf.get::<CoreLoc>();
    core.handler = Some(crate::run::handler::<T>);
    core.auto_redirect |= is_directory;
    let url = d.arg(0);
    if memchr::memchr(b'$', url).is_some() {
        let t = shared(cf, d)?;
        pick::<T>(cf).pass = Some(Pass::Vars(t));
        return Ok(());
    }
    let schemes = &T::FAMILY.schemes;
    let Some((tls, rest)) = schemes.split(url) else {
        return Err(d.bad(0, "invalid URL prefix"));
    };
    let endpoint = parse_endpoint(rest, schemes.url())
        .map_err(|e| d.bad(0, format!("{e} in upstream \"{}\"", String::from_utf8_lossy(rest))))?;
    let usual = schemes.usual_port(tls);
    let upstream = cf.get::<UpstreamMain>().add(d, &endpoint, usual)?;
    let parts = Parts::new(&endpoint, tls, usual);
    let fixed = Fixed { upstream, url: url.to_vec(), parts };
    pick::<T>(cf).pass = Some(Pass::Fixed(Arc::new(fixed)));
    Ok(())
}

pub(crate) fn set_bind(cf: &mut Cf, d: &Directive, pick: Pick) -> ConfResult {
    let bind = weir_core::bind::parse::<weir_http::Request>(cf, d)?;
    pick(cf).bind.once(d, bind)
}

/// What `proxy_next_upstream` knows.
pub(crate) const NEXT_HTTP: &Words = &[
    ("error", next::ERROR),
    ("timeout", next::TIMEOUT),
    ("invalid_header", next::INVALID_HEADER),
    ("non_idempotent", next::NON_IDEMPOTENT),
    ("http_500", next::HTTP_500),
    ("http_502", next::HTTP_502),
    ("http_503", next::HTTP_503),
    ("http_504", next::HTTP_504),
    ("http_403", next::HTTP_403),
    ("http_404", next::HTTP_404),
    ("http_429", next::HTTP_429),
    ("updating", next::UPDATING),
    ("off", next::OFF),
];

/// The same where a server is no gateway itself.
pub(crate) const NEXT_CGI: &Words = &[
    ("error", next::ERROR),
    ("timeout", next::TIMEOUT),
    ("invalid_header", next::INVALID_HEADER),
    ("non_idempotent", next::NON_IDEMPOTENT),
    ("http_500", next::HTTP_500),
    ("http_503", next::HTTP_503),
    ("http_403", next::HTTP_403),
    ("http_404", next::HTTP_404),
    ("http_429", next::HTTP_429),
    ("updating", next::UPDATING),
    ("off", next::OFF),
];

pub(crate) fn set_next_upstream(
    cf: &mut Cf,
    d: &Directive,
    words: &Words,
    pick: Pick,
) -> ConfResult {
    let bits = bits(cf, d, words)?;
    add_bits(&mut pick(cf).next_upstream, bits);
    Ok(())
}

/// What `…_ignore_headers` knows where answers are kept.
pub(crate) const IGNORE: &Words = &[
    ("X-Accel-Redirect", ignore::REDIRECT),
    ("X-Accel-Expires", ignore::EXPIRES),
    ("X-Accel-Limit-Rate", ignore::LIMIT_RATE),
    ("X-Accel-Buffering", ignore::BUFFERING),
    ("X-Accel-Charset", ignore::CHARSET),
    ("Expires", ignore::EXPIRES_FIELD),
    ("Cache-Control", ignore::CACHE_CONTROL),
    ("Set-Cookie", ignore::SET_COOKIE),
    ("Vary", ignore::VARY),
];

pub(crate) fn set_ignore_headers(
    cf: &mut Cf,
    d: &Directive,
    words: &Words,
    pick: Pick,
) -> ConfResult {
    let bits = bits(cf, d, words)?;
    add_bits(&mut pick(cf).ignore_headers, bits);
    Ok(())
}

/// As in nginx, a set may be given in several directives.
pub(crate) fn add_bits(set: &mut Val<u32>, bits: u32) {
    set.set(set.as_option().copied().unwrap_or(0) | bits);
}

/// A set of words; one given twice is only worth a warning.
fn bits(cf: &mut Cf, d: &Directive, words: &Words) -> ConfResult<u32> {
    let mut seen = Vec::new();
    let mut bits = 0;
    for i in 0..d.args.len() {
        let word = d.arg(i);
        let known = words.iter().find(|(w, _)| w.as_bytes().eq_ignore_ascii_case(word));
        let (name, bit) = known.ok_or_else(|| d.invalid(i))?;
        if seen.contains(name) {
            cf.warn(d, format!("duplicate value \"{name}\""));
        }
        seen.push(name);
        bits |= bit;
    }
    Ok(bits)
}
