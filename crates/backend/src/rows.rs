//! The directives that every backend has, once: each row is still the only source of its directive.

use crate::bits::{ignore, next};
use crate::conf::{BackendConf, BackendLoc, Words};
use crate::target::{Fixed, Parts, Pass};
use std::marker::PhantomData;
use std::sync::Arc;
use weir_core::paths::temp_path;
use weir_http::build::here;
use weir_http::conf::CoreLoc;
use weir_http::vars::template;
use weir_http::Request;
use weir_module::first::{flag, msec, num, size};
use weir_module::{name, set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, Val};
use weir_runtime::listen::parse_endpoint;
use weir_script::template::Template;
use weir_upstream::{Outgoing, Secures, SslRows, UpstreamMain};

const HSL: Context = Context::HSL;

pub(crate) const PASS: Context = Context::LOCATION.or(Context::LIF).or(Context::LMT);

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

/// A family's configuration at the current level.
pub(crate) fn pick<T: BackendConf>(cf: &mut Cf) -> &mut BackendLoc {
    cf.get::<T>().backend_mut()
}

impl<T: BackendConf> Rows<T> {
    /// About the servers and the connections to them: every family has these.
    pub(crate) const PEER: &'static [Row] = &[
        Row::new(name!("bind"), HSL, Arity::ONE_TWO, "", "The local address of connections.", set_bind::<T>)
            .note("transparent under another user than root takes a restart, where a reload is the first to bring it"),
        Row::new(name!("socket_keepalive"), HSL, Arity::FLAG, "off", "TCP keepalive to the server.", set!(pick::<T>, socket_keepalive, flag)),
        Row::new(name!("connect_timeout"), HSL, Arity::ONE, "60s", "Longest time to connect.", set!(pick::<T>, connect_timeout, msec)),
        Row::new(name!("send_timeout"), HSL, Arity::ONE, "60s", "Longest time between two writes.", set!(pick::<T>, send_timeout, msec)),
        Row::new(name!("read_timeout"), HSL, Arity::ONE, "60s", "Longest time between two reads.", set!(pick::<T>, read_timeout, msec)),
        Row::new(name!("buffer_size"), HSL, Arity::ONE, "4k|8k", "The longest header of an answer.", set!(pick::<T>, buffer_size, size)),
        Row::new(name!("next_upstream"), HSL, Arity::ONE_MORE, "error timeout", "When the next server is asked.", set_next_upstream::<T>)
        .note("what a server has answered before it closed is taken, though sending the request to it failed"),
        Row::new(name!("next_upstream_tries"), HSL, Arity::ONE, "0", "Most servers asked for one request.", set!(pick::<T>, next_upstream_tries, num)),
        Row::new(name!("next_upstream_timeout"), HSL, Arity::ONE, "0", "Longest time for asking servers.", set!(pick::<T>, next_upstream_timeout, msec)),
    ];

    /// What Tengine has besides.
    pub(crate) const TENGINE: &'static [Row] = &[Row::new(
        name!("upstream_tries"),
        HSL,
        Arity::ONE,
        "0",
        "Most servers asked for one request: another name of …_next_upstream_tries.",
        set!(pick::<T>, next_upstream_tries, num),
    )
    .note("It is Tengine's.")];

    /// About the sockets' buffers.
    pub(crate) const SOCKET: &'static [Row] = &[
        Row::new(
            name!("socket_rcvbuf"),
            HSL,
            Arity::ONE,
            "0",
            "Receive buffer of the socket.",
            set!(pick::<T>, socket_rcvbuf, size),
        ),
        Row::new(
            name!("socket_sndbuf"),
            HSL,
            Arity::ONE,
            "0",
            "Send buffer of the socket.",
            set!(pick::<T>, socket_sndbuf, size),
        ),
    ];

    /// About what comes and goes in headers: every family that has headers.
    pub(crate) const HEADER: &'static [Row] = &[
        Row::new(
            name!("intercept_errors"),
            HSL,
            Arity::FLAG,
            "off",
            "error_page for the server's errors.",
            set!(pick::<T>, intercept_errors, flag),
        ),
        Row::new(
            name!("pass_header"),
            HSL,
            Arity::ONE,
            "",
            "A hidden field that is passed.",
            set_pass_header::<T>,
        ),
        Row::new(
            name!("hide_header"),
            HSL,
            Arity::ONE,
            "",
            "A field that is not passed.",
            set_hide_header::<T>,
        ),
        Row::new(
            name!("ignore_headers"),
            HSL,
            Arity::ONE_MORE,
            "",
            "Fields of the server that do nothing here.",
            set_ignore_headers::<T>,
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
            set!(pick::<T>, buffering, flag),
        )
        .note("on: what the server has sent is passed on before more is waited for, whatever the \
               body's framing; what gzip holds, and a head without a body, after 10 ms"),
        Row::new(
            name!("request_buffering"),
            HSL,
            Arity::FLAG,
            "on",
            "Reads a whole request before passing it.",
            set!(pick::<T>, request_buffering, flag),
        )
        .note(
            "a request that is redirected (error_page, X-Accel-Redirect) when a part of its body has gone out \
             unbuffered is passed on without any body if it is a GET or HEAD by then, and otherwise answered \
             with 502; nginx announces the whole body to the next server and sends none",
        ),
        Row::new(
            name!("ignore_client_abort"),
            HSL,
            Arity::FLAG,
            "off",
            "Lets the server finish when the client goes.",
            set!(pick::<T>, ignore_client_abort, flag),
        ),
        Row::new(
            name!("pass_request_headers"),
            HSL,
            Arity::FLAG,
            "on",
            "Passes the client's header.",
            set!(pick::<T>, pass_request_headers, flag),
        ),
        Row::new(
            name!("pass_request_body"),
            HSL,
            Arity::FLAG,
            "on",
            "Passes the client's body.",
            set!(pick::<T>, pass_request_body, flag),
        )
        .note("off: no Content-Length is sent for the body that is not"),
        Row::new(
            name!("buffers"),
            HSL,
            Arity::TWO,
            "8 4k|8k",
            "Memory for an answer the client is slow to take.",
            set_buffers::<T>,
        ),
        Row::new(
            name!("busy_buffers_size"),
            HSL,
            Arity::ONE,
            "8k|16k",
            "Part of the buffers being sent.",
            set!(pick::<T>, busy_buffers_size, some_size),
        )
        .note("checked; all that is read may be sent at once here"),
        Row::new(
            name!("force_ranges"),
            HSL,
            Arity::FLAG,
            "off",
            "Byte ranges whatever the server says.",
            set!(pick::<T>, force_ranges, flag),
        ),
        Row::new(
            name!("limit_rate"),
            HSL,
            Arity::ONE,
            "0",
            "Bytes a second read from the server.",
            set_limit_rate::<T>,
        )
        .note("each second's worth is read at once and the last is not followed by a pause, so that an answer \
            is complete up to a second earlier than nginx's"),
        Row::new(
            name!("temp_path"),
            HSL,
            Arity::ONE_TO_FOUR,
            name!("temp"),
            "Directory for answers too large for memory.",
            set_temp_path::<T>,
        ),
        Row::new(
            name!("max_temp_file_size"),
            HSL,
            Arity::ONE,
            "1024m",
            "The largest temporary file.",
            set!(pick::<T>, max_temp_file_size, some_size),
        ),
        Row::new(
            name!("temp_file_write_size"),
            HSL,
            Arity::ONE,
            "64k",
            "Most written to it at once.",
            set!(pick::<T>, temp_file_write_size, some_size),
        )
        .note("the default is 64k, and two buffers where those are more; nginx's is two buffers (8k or 16k)"),
    ];
}

fn some_size(d: &Directive) -> ConfResult<Option<u64>> {
    d.size(0).map(Some)
}

pub(crate) fn shared(cf: &mut Cf, d: &Directive) -> ConfResult<Arc<Template>> {
    template(cf, d, 0).map(Arc::new)
}

fn set_buffers<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let num = d.num(0)?;
    let each = d.size(1)?;
    if num == 0 || each == 0 {
        return Err(d.invalid(0));
    }
    pick::<T>(cf).buffers.once(d, (num, each))
}

fn set_limit_rate<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let v = shared(cf, d)?;
    if let Some(text) = v.as_constant() {
        weir_base::units::parse_size(text).ok_or_else(|| d.invalid(0))?;
    }
    pick::<T>(cf).limit_rate.once(d, Some(v))
}

fn set_temp_path<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let v = temp_path(cf, d)?;
    pick::<T>(cf).temp_path.once(d, v)
}

fn set_pass_header<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    push(&mut pick::<T>(cf).pass_headers, d.arg(0).to_vec());
    Ok(())
}

fn set_hide_header<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    push(&mut pick::<T>(cf).hide_headers, d.arg(0).to_vec());
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
    let url = d.arg(0);
    if memchr::memchr(b'$', url).is_some() {
        let t = shared(cf, d)?;
        return pass_by::<T>(cf, d, t);
    }
    answer_by::<T>(cf, d)?;
    let schemes = &T::FAMILY.schemes;
    let Some((tls, rest)) = schemes.split(url) else {
        return Err(d.bad(0, "invalid URL prefix"));
    };
    let endpoint = parse_endpoint(rest, schemes.url())
        .map_err(|e| d.bad(0, format!("{e} in upstream \"{}\"", String::from_utf8_lossy(rest))))?;
    let usual = schemes.usual_port(tls);
    let upstream = cf.get::<UpstreamMain>().add(d, &endpoint, usual)?;
    let parts = Parts::new(&endpoint, tls, usual);
    let fixed = Fixed::new(upstream, url, parts);
    pick::<T>(cf).pass = Some(Pass::Fixed(Arc::new(fixed)));
    Ok(())
}

/// The location's content comes from where variables say.
pub(crate) fn pass_by<T: BackendConf>(
    cf: &mut Cf,
    d: &Directive,
    url: Arc<Template>,
) -> ConfResult {
    answer_by::<T>(cf, d)?;
    pick::<T>(cf).pass = Some(Pass::Vars(url));
    Ok(())
}

/// Makes the family the location's handler, once.
fn answer_by<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    if pick::<T>(cf).pass.is_some() {
        return Err(d.error("is duplicate"));
    }
    let is_directory = here(cf).name.last() == Some(&b'/');
    let core = cf.get::<CoreLoc>();
    core.handler = Some(crate::run::handler::<T>);
    core.auto_redirect |= is_directory;
    Ok(())
}

pub(crate) fn set_bind<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let bind = weir_core::bind::parse::<weir_http::Request>(cf, d)?;
    pick::<T>(cf).bind.once(d, bind)
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

fn set_next_upstream<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let bits = bits(cf, d, T::NEXT)?;
    add_bits(&mut pick::<T>(cf).next_upstream, bits);
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

fn set_ignore_headers<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let bits = bits(cf, d, IGNORE)?;
    add_bits(&mut pick::<T>(cf).ignore_headers, bits);
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
