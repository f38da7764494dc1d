//! The core module's directives: nginx's `ngx_http_core_module`.

use crate::build;
use crate::conf::{
    full_root, root_begins, Aio, BodyInFile, CoreLoc, CoreSrv, ErrorPage, IfModifiedSince,
    Lingering, OpenFileCache, Satisfy, ServerTokens, TryFile, TryFiles, TryLast, Types,
};
use crate::core_vars;
use crate::generation::HttpConf;
use crate::module::HttpModule;
use crate::process_figures;
use crate::request::Request;
use crate::vars::{template, template_of};
use std::path::PathBuf;
use std::sync::Arc;
use weir_base::units;
use weir_core::error_log::{error_log_sink, push_log};
use weir_core::listen;
use weir_core::paths::{make_temp_path, temp_path};
use weir_module::first::{bytes, flag, msec, num, offset, sec, size};
use weir_module::{
    distinct, set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, SlotVtable,
};
use weir_script::template::Template;
use weir_wire::http1::request::Method;

/// The rows that have files of their own.
pub const EARLY: HttpModule = HttpModule { rows: crate::early::ROWS, ..HttpModule::EMPTY };
/// `disable_symlinks`
pub const SYMLINKS: HttpModule = HttpModule { rows: crate::symlinks::ROWS, ..HttpModule::EMPTY };

/// The directives and variables that need no module.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[
        SlotVtable::of::<crate::conf::CoreMain>(),
        SlotVtable::of::<crate::module::Modules>(),
        SlotVtable::of::<crate::lent::Lent>(),
        SlotVtable::of::<CoreSrv>(),
        crate::conf::LOC_SLOT,
    ],
    variables: core_vars::VARIABLES,
    build: Some(make_temp_paths),
    dirs: Some(temp_dirs),
    reports: process_figures::REPORTS,
    ..HttpModule::EMPTY
};

const HSL: Context = Context::HSL;
const HS: Context = Context::HS;
const HSLI: Context = Context::HSL.or(Context::LIF);
const LOC: Context = Context::LOCATION;
const SL: Context = Context::SERVER.or(Context::LOCATION);

fn srv(cf: &mut Cf) -> &mut CoreSrv {
    cf.get()
}

fn loc(cf: &mut Cf) -> &mut CoreLoc {
    cf.get()
}

/// Checks a value that has no effect here; its row's note says what happens instead.
fn checked_size(_: &mut Cf, d: &Directive) -> ConfResult {
    d.size(0).map(|_| ())
}
fn checked_num(_: &mut Cf, d: &Directive) -> ConfResult {
    d.num(0).map(|_| ())
}
fn checked_flag(_: &mut Cf, d: &Directive) -> ConfResult {
    d.flag().map(|_| ())
}

const NO_TABLE: &str = "Tables here size themselves; the value is checked and not needed.";
const NO_POOL: &str =
    "Memory is pooled per worker and grows by need; the value is checked and not needed.";

/// They stand in nginx's order.
pub const ROWS: &[Row] = &[
    Row::block("server", Context::HTTP, Arity::NONE, "A virtual server.", build::set_server),
    Row::block("location", SL, Arity::ONE_TWO, "Configuration for a part of the URI space.", build::set_location),
    Row::new("listen", Context::SERVER, Arity::ONE_MORE, "*:80", "An address the server accepts connections on.", set_listen).note("With reuseport, a worker that has not come back to its event loop for 0.1 s has its socket served by the others until it is back. A reload may add or remove the option, and change the number of workers, without losing what waits in a socket."),
    Row::new("server_name", Context::SERVER, Arity::ONE_MORE, "\"\"", "Names of the server: exact, wildcard or ~regex.", |cf, d| {
        listen::set_server_name::<Request>(cf, d, |cf| &mut cf.get::<CoreSrv>().reached)
    }),
    Row::new("variables_hash_max_size", Context::HTTP, Arity::ONE, "1024", "Size of the variables' table.", checked_num).once().note(NO_TABLE),
    Row::new("variables_hash_bucket_size", Context::HTTP, Arity::ONE, "64", "Bucket of the variables' table.", checked_num).once().note(NO_TABLE),
    Row::new("server_names_hash_max_size", Context::HTTP, Arity::ONE, "512", "Size of the server names' table.", checked_num).once().note(NO_TABLE),
    Row::new("server_names_hash_bucket_size", Context::HTTP, Arity::ONE, "64", "Bucket of the server names' table.", checked_num).once().note(NO_TABLE),
    Row::new("types_hash_max_size", HSL, Arity::ONE, "1024", "Size of the types' table.", checked_num).once().note(NO_TABLE),
    Row::new("types_hash_bucket_size", HSL, Arity::ONE, "64", "Bucket of the types' table.", checked_num).once().note(NO_TABLE),
    Row::new("connection_pool_size", HS, Arity::ONE, "512", "Memory first taken for a connection.", checked_size).once().note(NO_POOL),
    Row::new("request_pool_size", HS, Arity::ONE, "4k", "Memory first taken for a request.", checked_size).once().note(NO_POOL),
    Row::new("client_header_timeout", HS, Arity::ONE, "60s", "Longest time to wait for a request's head.", set!(srv, client_header_timeout, msec)),
    Row::new("client_header_buffer_size", HS, Arity::ONE, "1k", "First buffer for a request's head.", set!(srv, client_header_buffer_size, size)),
    Row::new("large_client_header_buffers", HS, Arity::TWO, "4 8k", "Number and size of buffers for a large head.", |cf, d| {
        let v = (d.num(0)? as u32, d.size(1)?);
        cf.get::<CoreSrv>().large_client_header_buffers.once(d, v)
    }),
    Row::new("max_headers", HS, Arity::ONE, "1000", "Most header fields in a request.", |cf, d| {
        let v = d.num(0)? as usize;
        cf.get::<CoreSrv>().max_headers.once(d, v)
    }),
    Row::new("ignore_invalid_headers", HS, Arity::FLAG, "on", "Drop header fields with invalid names.", set!(srv, ignore_invalid_headers, flag)),
    Row::new("underscores_in_headers", HS, Arity::FLAG, "off", "Allow underscores in field names.", set!(srv, underscores_in_headers, flag)),
    Row::new("merge_slashes", HS, Arity::FLAG, "on", "Merge adjacent slashes of the URI into one.", set!(srv, merge_slashes, flag)),
    Row { name: "types", contexts: HSL, arity: Arity::NONE, body: weir_module::RowBody::Block, default: "text/html html; image/gif gif; image/jpeg jpg", doc: "Maps file name extensions to MIME types.", note: "", is_once: false, set: set_types },
    Row::new("default_type", HSL, Arity::ONE, "text/plain", "MIME type of what types does not name.", set!(Cf::get::<CoreLoc>, default_type, bytes)),
    Row::new("root", HSLI, Arity::ONE, "html", "Root directory for requests.", set_root),
    Row::new("alias", LOC, Arity::ONE, "", "Directory that replaces the location's name.", set_root),
    Row::block("limit_except", LOC, Arity::ONE_MORE, "Limits other methods inside a location.", set_limit_except),
    Row::new("client_max_body_size", HSL, Arity::ONE, "1m", "Largest request body; 0 for any.", set!(loc, client_max_body_size, offset)),
    Row::new("client_body_buffer_size", HSL, Arity::ONE, "16k", "Memory for a request body before it goes to a file.", set!(loc, client_body_buffer_size, size)),
    Row::new("client_body_timeout", HSL, Arity::ONE, "60s", "Longest time between two reads of a request body.", set!(loc, client_body_timeout, msec)),
    Row::new("client_body_temp_path", HSL, Arity::ONE_TO_FOUR, "client_body_temp", "Directory for request bodies.", |cf, d| {
        let v = temp_path(cf, d)?;
        cf.get::<CoreLoc>().client_body_temp_path.once(d, v)
    }),
    Row::new("client_body_in_file_only", HSL, Arity::ONE, "off", "Always put the request body into a file.", |cf, d| {
        let v = d.choice(0, &[("off", BodyInFile::Off), ("on", BodyInFile::On), ("clean", BodyInFile::Clean)])?;
        cf.get::<CoreLoc>().client_body_in_file_only.once(d, v)
    }),
    Row::new("client_body_in_single_buffer", HSL, Arity::FLAG, "off", "Keep the request body in one buffer.", set!(loc, client_body_in_single_buffer, flag)).note("A body in memory is always in one buffer."),
    Row::new("sendfile", HSLI, Arity::FLAG, "off", "Send large files without copying them.", set!(loc, sendfile, flag)),
    Row::new("sendfile_max_chunk", HSL, Arity::ONE, "2m", "Most data in one sendfile call.", set!(loc, sendfile_max_chunk, size)).note("Of all output, as in nginx; others have their turn in between."),
    Row::new("aio", HSL, Arity::ONE, "off", "Read files without blocking the worker.", set_aio).note("\"on\" means the thread pool, as kernel AIO is refused by most file systems without directio. Files are read in buffers of output_buffers' size."),
    Row::new("aio_write", HSL, Arity::FLAG, "off", "Write temporary files without blocking.", checked_flag).once().note("Temporary files are written through the page cache."),
    Row::new("read_ahead", HSL, Arity::ONE, "0", "Kernel read-ahead for files.", checked_size).once().note("Left to the kernel."),
    Row::new("directio", HSL, Arity::ONE, "off", "Read files of at least this size past the page cache.", |cf, d| {
        let v = if d.arg(0) == b"off" { u64::MAX } else { d.offset(0)? };
        cf.get::<CoreLoc>().directio.once(d, v)
    }).note("Read in the thread pool, whatever aio says, in buffers of output_buffers' size; a range that begins at an offset that is not aligned is read from the aligned one before it."),
    Row::new("directio_alignment", HSL, Arity::ONE, "512", "Alignment for directio.", set!(loc, directio_alignment, offset)),
    Row::new("tcp_nopush", HSL, Arity::FLAG, "off", "Send header and file start in one packet.", set!(loc, tcp_nopush, flag)).note("Always so: the header is sent with MSG_MORE when a file follows."),
    Row::new("tcp_nodelay", HSL, Arity::FLAG, "on", "Set TCP_NODELAY on kept connections.", set!(loc, tcp_nodelay, flag)),
    Row::new("send_timeout", HSL, Arity::ONE, "60s", "Longest time between two writes to the client.", set!(loc, send_timeout, msec)),
    Row::new("send_lowat", HSL, Arity::ONE, "0", "Least free send buffer.", checked_size).once().note("Linux has no SO_SNDLOWAT; nginx ignores it there too."),
    Row::new("postpone_output", HSL, Arity::ONE, "1460", "Gather at least this much before sending.", set!(loc, postpone_output, size)).note("Counts for answers put together from subrequests; other output is gathered until its producer waits or ends."),
    Row::new("limit_rate", HSLI, Arity::ONE, "0", "Bytes a second to a client, per response.", |cf, d| {
        let v = rate(cf, d)?;
        cf.get::<CoreLoc>().limit_rate.once(d, v)
    }),
    Row::new("limit_rate_after", HSLI, Arity::ONE, "0", "Bytes of a response before limit_rate begins.", |cf, d| {
        let v = rate(cf, d)?;
        cf.get::<CoreLoc>().limit_rate_after.once(d, v)
    }),
    Row::new("keepalive_time", HSL, Arity::ONE, "1h", "Longest life of a kept connection.", set!(loc, keepalive_time, msec)),
    Row::new("keepalive_timeout", HSL, Arity::ONE_TWO, "75s", "How long an idle connection is kept; second: the Keep-Alive header.", |cf, d| {
        let v = d.msec(0)?;
        let header = if d.args.len() > 1 { Some(d.sec(1)?) } else { None };
        let core = cf.get::<CoreLoc>();
        core.keepalive_timeout.once(d, v)?;
        core.keepalive_header.set(header.filter(|s| *s > 0));
        Ok(())
    }),
    Row::new("keepalive_min_timeout", HSL, Arity::ONE, "0", "An idle connection is not closed sooner at shutdown.", set!(loc, keepalive_min_timeout, msec)).note("A reload closes none."),
    Row::new("keepalive_requests", HSL, Arity::ONE, "1000", "Most requests on one connection.", set!(loc, keepalive_requests, num)),
    Row::new("keepalive_disable", HSL, Arity::ONE_TWO, "msie6", "Browsers whose connections are not kept.", set_keepalive_disable),
    Row::new("satisfy", HSL, Arity::ONE, "all", "Whether all or any of the access modules must agree.", |cf, d| {
        let v = d.choice(0, &[("all", Satisfy::All), ("any", Satisfy::Any)])?;
        cf.get::<CoreLoc>().satisfy.once(d, v)
    }),
    Row::new("auth_delay", HSL, Arity::ONE, "0s", "Delay of answers to unauthorized requests.", set!(loc, auth_delay, msec)),
    Row::new("internal", LOC, Arity::NONE, "", "The location serves internal requests only.", |cf, d| cf.get::<CoreLoc>().internal.once(d, true)),
    Row::new("lingering_close", HSL, Arity::ONE, "on", "How connections with unread data are closed.", |cf, d| {
        let v = d.choice(0, &[("off", Lingering::Off), ("on", Lingering::On), ("always", Lingering::Always)])?;
        cf.get::<CoreLoc>().lingering_close.once(d, v)
    }),
    Row::new("lingering_time", HSL, Arity::ONE, "30s", "Longest time of a lingering close.", set!(loc, lingering_time, msec)),
    Row::new("lingering_timeout", HSL, Arity::ONE, "5s", "Longest silence during a lingering close.", set!(loc, lingering_timeout, msec)),
    Row::new("reset_timedout_connection", HSL, Arity::FLAG, "off", "Reset connections that timed out.", set!(loc, reset_timedout_connection, flag)),
    Row::new("absolute_redirect", HSL, Arity::FLAG, "on", "Redirects carry scheme and host.", set!(loc, absolute_redirect, flag)),
    Row::new("server_name_in_redirect", HSL, Arity::FLAG, "off", "Redirects use the primary server name.", set!(loc, server_name_in_redirect, flag)),
    Row::new("port_in_redirect", HSL, Arity::FLAG, "on", "Redirects carry the port.", set!(loc, port_in_redirect, flag)),
    Row::new("msie_padding", HSL, Arity::FLAG, "on", "Pad error pages for browsers that hide short ones.", set!(loc, msie_padding, flag)),
    Row::new("msie_refresh", HSL, Arity::FLAG, "off", "Refresh instead of redirect for MSIE.", set_msie_refresh),
    Row::new("log_not_found", HSL, Arity::FLAG, "on", "Log files that are not found.", set!(loc, log_not_found, flag)),
    Row::new("log_subrequest", HSL, Arity::FLAG, "off", "Log subrequests in the access log.", set!(loc, log_subrequest, flag)),
    Row::new("post_action", HSLI, Arity::ONE, "", "Where a request goes once it has been answered; nobody sees the answer.", |cf, d| {
        let v = Some(d.arg(0).to_vec());
        cf.get::<CoreLoc>().post_action.once(d, v)
    }).note("Where the location it leads to inherits it, it is done once; nginx does it ten times."),
    Row::new("subrequest_output_buffer_size", HSL, Arity::ONE, "4k", "The longest answer of a subrequest that is kept in memory (SSI's set).", set!(loc, subrequest_output_buffer_size, size)),
    Row::new("recursive_error_pages", HSL, Arity::FLAG, "off", "error_page may be used more than once a request.", set!(loc, recursive_error_pages, flag)),
    Row::new("server_tokens", HSL, Arity::ONE, "on", "Show the version in Server and error pages.", |cf, d| {
        let v = d.choice(0, &[("on", ServerTokens::On), ("off", ServerTokens::Off), ("build", ServerTokens::Build)])?;
        cf.get::<CoreLoc>().server_tokens.once(d, v)
    }),
    Row::new("if_modified_since", HSL, Arity::ONE, "exact", "How If-Modified-Since is compared.", |cf, d| {
        let v = d.choice(0, &[("off", IfModifiedSince::Off), ("exact", IfModifiedSince::Exact), ("before", IfModifiedSince::Before)])?;
        cf.get::<CoreLoc>().if_modified_since.once(d, v)
    }),
    Row::new("max_ranges", HSL, Arity::ONE, "", "Most ranges in a request; 0 turns ranges off.", set!(loc, max_ranges, num)),
    Row::new("chunked_transfer_encoding", HSL, Arity::FLAG, "on", "Chunked responses to HTTP/1.1 clients.", set!(loc, chunked_transfer_encoding, flag)),
    Row::new("etag", HSL, Arity::FLAG, "on", "ETag for static files.", set!(loc, etag, flag)),
    Row::new("error_page", HSLI, Arity::TWO_MORE, "", "The URI shown for errors.", set_error_page)
        .note("A server that is asked for the page of a body that was refused (413, 400) is told of no body; nginx announces the length of the one that it throws away."),
    Row::new("try_files", SL, Arity::TWO_MORE, "", "Serve the first file that exists, or the last argument.", set_try_files),
    Row::new("error_log", HSL, Arity::ONE_MORE, "logs/error.log error", "Where errors are logged.", |cf, d| {
        let sink = error_log_sink(cf, d)?;
        let core = cf.get::<CoreLoc>();
        push_log(&mut core.error_log, sink);
        Ok(())
    })
    .note("Control characters are written as \\x0A and the like in lines about a connection, so that nobody else writes lines of the log; nginx writes them as they are."),
    Row::new("open_file_cache", HSL, Arity::ONE_TWO, "off", "Keep open files, sizes and errors.", set_open_file_cache).note("Small files are kept in memory too, within bounds of their own; max counts the files of each worker."),
    Row::new("open_file_cache_valid", HSL, Arity::ONE, "60s", "How long a kept file is not checked.", set!(loc, open_file_cache_valid, sec)),
    Row::new("open_file_cache_min_uses", HSL, Arity::ONE, "1", "Uses before a file is kept open.", set!(loc, open_file_cache_min_uses, num)),
    Row::new("open_file_memory", Context::HTTP, Arity::ONE, "64m", "Memory of each worker for small files and their compressed forms.", set!(loc, open_file_memory, size)).note("Weir's own: a file of up to 64 KiB is answered from memory, checked by one stat a request (which also asks for the way through the directories; a file whose owner, mode or text has changed since is opened again), and compressed once per coding and level; 0 keeps nothing."),
    Row::new("open_file_cache_events", HSL, Arity::FLAG, "off", "Let the kernel tell of changes.", checked_flag).once().note("Not needed: a kept file is checked by stat."),
    Row::new("output_buffers", HSL, Arity::TWO, "2 32k", "Number and size of the buffers for reading files.", |cf, d| {
        let (number, size) = (d.num(0)?, d.size(1)?);
        let number = u32::try_from(number).ok().filter(|n| *n > 0).ok_or_else(|| d.invalid(0))?;
        let size = if size > 0 { size } else { return Err(d.invalid(1)) };
        cf.get::<CoreLoc>().output_buffers.once(d, (number, size))
    }).note("For files that are not sent by sendfile: so much is read at once, and so much may wait for the client."),
    Row::new("open_file_cache_errors", HSL, Arity::FLAG, "off", "Keep errors too.", set!(loc, open_file_cache_errors, flag)),
    Row::new("resolver", HSL, Arity::ONE_MORE, "", "Name servers.", |cf, d| {
        let v = weir_core::resolver::parse(d)?;
        cf.get::<CoreLoc>().resolver.once(d, Some(v))
    }).note(weir_core::resolver::NOTE),
    Row::new("resolver_file", HSL, Arity::ONE, "", "The name servers that a file like /etc/resolv.conf names.", |cf, d| {
        let v = weir_core::resolver::parse_file(cf, d)?;
        cf.get::<CoreLoc>().resolver.once(d, Some(v))
    }).note("Tengine's; it takes resolver's place. The file is read with the configuration."),
    Row::new("resolver_timeout", HSL, Arity::ONE, "30s", "Longest time for a name.", set!(loc, resolver_timeout, msec)),
    Row::new("gzip_vary", HSL, Arity::FLAG, "off", "Send Vary: Accept-Encoding.", set!(loc, gzip_vary, flag)),
];

/// Where request bodies go that are too large for memory.
fn temp_dirs(http: &HttpConf) -> Vec<PathBuf> {
    let paths = http.locations.iter().map(|l| l.core.client_body_temp_path.dir());
    // Locations have their server's mostly.
    let mut dirs: Vec<PathBuf> = Vec::new();
    paths.for_each(|path| match dirs.last() {
        Some(last) if last == path => {}
        _ => dirs.push(path.to_path_buf()),
    });
    dirs
}

/// Temporary directories are made at start, as nginx does.
fn make_temp_paths(b: &mut build::Build) -> ConfResult {
    for core in distinct::<CoreLoc>(b.locations) {
        make_temp_path(&core.client_body_temp_path, &b.cf.prefix, b.cf.mode)?;
    }
    Ok(())
}

/// Long dead browsers needed a page that refreshes itself in place of a redirect.
fn set_msie_refresh(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.flag()? {
        let mut e = d.bad(0, "\"msie_refresh on\" is refused");
        e.hint = Some("no browser in use needs it; remove the directive".into());
        return Err(e);
    }
    cf.get::<CoreLoc>().msie_refresh.once(d, false)
}

fn set_types(cf: &mut Cf, d: &Directive) -> ConfResult {
    let core = cf.get::<CoreLoc>();
    if !core.types.is_set() {
        core.types.set(Arc::new(Types::default()));
    }
    for row in d.children() {
        if !matches!(row.body, weir_module::Body::None) {
            return Err(row.fail("unexpected \"{\""));
        }
        let kind: Box<[u8]> = row.name.text.clone();
        if row.args.is_empty() {
            continue;
        }
        let Some(types) = core.types.as_mut().map(Arc::make_mut) else { continue };
        for ext in &row.args {
            let key = ext.text.to_ascii_lowercase().into_boxed_slice();
            types.insert(key, kind.clone());
        }
    }
    Ok(())
}

fn set_root(cf: &mut Cf, d: &Directive) -> ConfResult {
    let alias = &*d.name.text == b"alias";
    let mut text = d.arg(0).to_vec();
    let shown = String::from_utf8_lossy(&text).into_owned();
    let core = cf.get::<CoreLoc>();
    if core.root.is_set() {
        let had = if *core.alias { "alias" } else { "root" };
        if *core.alias == alias {
            return Err(d.error("is duplicate"));
        }
        return Err(d.error(&format!("is duplicate, \"{had}\" directive was specified earlier")));
    }
    if alias && build::here(cf).is_named {
        return Err(d.fail("the \"alias\" directive cannot be used inside the named location"));
    }
    let lower = text.to_ascii_lowercase();
    let find = |n: &[u8]| memchr::memmem::find(&lower, n).is_some();
    if find(b"$document_root") || find(b"${document_root}") {
        return Err(d.bad(
            0,
            format!("the $document_root variable cannot be used in the \"{}\" directive", d.name()),
        ));
    }
    if find(b"$realpath_root") || find(b"${realpath_root}") {
        return Err(d.bad(
            0,
            format!("the $realpath_root variable cannot be used in the \"{}\" directive", d.name()),
        ));
    }
    if !alias && text.len() > 1 && text.last() == Some(&b'/') {
        text.pop();
    }
    let compiled = template_of(cf, d, 0, &text).map_err(|mut e| {
        e.hint.get_or_insert_with(|| format!("in \"{shown}\""));
        e
    })?;
    let compiled = full_root(compiled, &cf.prefix);
    let begins = root_begins(&compiled, &cf.prefix);
    let here = build::here(cf);
    let (is_regex, name) = (here.is_regex, alias.then(|| here.name.clone()));
    let core = cf.get::<CoreLoc>();
    core.root.set(Arc::new(compiled));
    core.root_begins = begins;
    core.alias.set(alias);
    core.alias_is_whole = alias && is_regex;
    core.alias_name = name;
    Ok(())
}

fn set_limit_except(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut bits = 0;
    for i in 0..d.args.len() {
        let name = d.arg(i).to_ascii_uppercase();
        match Method::from_bytes(&name) {
            Method::Other | Method::Connect | Method::Trace => {
                let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
                return Err(d.bad(i, format!("invalid method \"{shown}\"")));
            }
            m => bits |= m.bit(),
        }
    }
    if bits & Method::Get.bit() != 0 {
        bits |= Method::Head.bit();
    }
    let id = build::unnamed_location(cf, d, Context::LMT)?;
    cf.get::<CoreLoc>().limit_except = Some((bits, id));
    Ok(())
}

fn set_aio(cf: &mut Cf, d: &Directive) -> ConfResult {
    let v = match d.arg(0) {
        b"off" => Aio::Off,
        b"on" => Aio::Threads,
        a if a == b"threads" => Aio::Threads,
        a if a.starts_with(b"threads=") => Aio::Threads,
        _ => return Err(d.invalid(0)),
    };
    cf.get::<CoreLoc>().aio.once(d, v)
}

/// A size, possibly with variables; a constant is checked here.
fn rate(cf: &mut Cf, d: &Directive) -> ConfResult<Option<Arc<Template>>> {
    let t = template(cf, d, 0)?;
    if let Some(text) = t.as_constant() {
        if units::parse_size(text).ok_or_else(|| d.error("invalid value"))? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(Arc::new(t)))
}

fn set_keepalive_disable(cf: &mut Cf, d: &Directive) -> ConfResult {
    let words = [("none", 4u8), ("msie6", 1), ("safari", 2)];
    let mut bits = cf.get::<CoreLoc>().keepalive_disable.as_option().copied().unwrap_or(0);
    for i in 0..d.args.len() {
        let bit = d.choice(i, &words)?;
        if bits & bit != 0 {
            cf.warn_duplicate_value(d, i);
        }
        bits |= bit;
    }
    cf.get::<CoreLoc>().keepalive_disable.set(bits);
    Ok(())
}

fn set_error_page(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut last = d.args.len() - 1;
    let uri = d.arg(last).to_vec();
    let mut overwrite = None;
    if let Some(code) = d.arg(last - 1).strip_prefix(b"=") {
        overwrite = Some(match code.is_empty() {
            true => 0,
            false => units::parse_int(code).ok_or_else(|| d.invalid(last - 1))? as u16,
        });
        if last < 2 {
            return Err(d.invalid(last - 1));
        }
        last -= 1;
    }
    let i = d.args.len() - 1;
    let (path, args) = match uri.iter().position(|b| *b == b'?') {
        Some(at) if uri.first() == Some(&b'/') => (&uri[..at], Some(&uri[at + 1..])),
        _ => (&uri[..], None),
    };
    let target = template_of(cf, d, i, path)?;
    let args = match args {
        Some(a) => Some(template_of(cf, d, i, a)?),
        None => None,
    };
    for n in 0..last {
        let shown = String::from_utf8_lossy(d.arg(n)).into_owned();
        let code = units::parse_int(d.arg(n)).ok_or_else(|| d.invalid(n))?;
        if code == 499 {
            return Err(d.bad(
                n,
                "value \"499\" is reserved and cannot be used in the \"error_page\" directive",
            ));
        }
        if !(300..=599).contains(&code) {
            return Err(d.bad(n, format!("value \"{shown}\" must be between 300 and 599")));
        }
        let mut overwrite = overwrite;
        // The shown status of nginx's own codes is 400.
        if overwrite.is_none() && matches!(code, 494..=497) {
            overwrite = Some(400);
        }
        let page = ErrorPage {
            status: code as u16,
            overwrite,
            target: target.clone(),
            args: args.clone(),
        };
        let core = cf.get::<CoreLoc>();
        if !core.error_pages.is_set() {
            core.error_pages.set(Arc::default());
        }
        if let Some(list) = core.error_pages.as_mut().map(Arc::make_mut) {
            list.push(page);
        }
    }
    Ok(())
}

fn set_try_files(cf: &mut Cf, d: &Directive) -> ConfResult {
    if cf.get::<CoreLoc>().try_files.is_some() {
        return Err(d.error("is duplicate"));
    }
    let end = d.args.len() - 1;
    let mut files = Vec::with_capacity(end);
    for i in 0..end {
        let text = d.arg(i);
        let directory = text.len() > 1 && text.last() == Some(&b'/');
        let path = template(cf, d, i)?;
        files.push(TryFile { path, directory });
    }
    let tail = d.arg(end).to_vec();
    let last = if let Some(code) = tail.strip_prefix(b"=") {
        let n = units::parse_int(code).filter(|n| *n <= 999);
        let shown = String::from_utf8_lossy(&tail[1..]).into_owned();
        TryLast::Status(n.ok_or_else(|| d.bad(end, format!("invalid code \"{shown}\"")))? as u16)
    } else if tail.first() == Some(&b'@') {
        TryLast::Named(tail)
    } else {
        TryLast::Uri(template(cf, d, end)?)
    };
    cf.get::<CoreLoc>().try_files = Some(TryFiles { files, last });
    Ok(())
}

fn set_open_file_cache(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut cache = OpenFileCache { max: 0, inactive_secs: 60 };
    for i in 0..d.args.len() {
        if d.arg(i) == b"off" {
            return cf.get::<CoreLoc>().open_file_cache.once(d, None);
        }
        let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
        let bad = || d.bad(i, format!("invalid \"open_file_cache\" parameter \"{shown}\""));
        if let Some(n) = d.keyed(i, "max") {
            let n = units::parse_int(n).filter(|n| *n > 0);
            cache.max = n.ok_or_else(bad)? as usize;
        } else if let Some(t) = d.keyed(i, "inactive") {
            cache.inactive_secs = units::parse_sec(t).ok_or_else(bad)?;
        } else {
            return Err(bad());
        }
    }
    if cache.max == 0 {
        return Err(d.fail("\"open_file_cache\" must have the \"max\" parameter"));
    }
    cf.get::<CoreLoc>().open_file_cache.once(d, Some(cache))
}

/// `listen ADDRESS[:PORT] [option …]`
fn set_listen(cf: &mut Cf, d: &Directive) -> ConfResult {
    let by_quic = d.args.iter().any(|a| *a.text == *b"quic");
    if by_quic {
        let text =
            "no HTTP/3 yet: the address is left out, and clients use HTTP/2 or HTTP/1.1 over TCP";
        cf.warn(d, text);
        cf.get::<CoreSrv>().left_out = true;
    }
    for listen in listen::parse(d, own_option)? {
        if by_quic {
            continue;
        }
        if listen.http2 {
            cf.warn(
                d,
                "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive instead",
            );
        }
        cf.get::<CoreSrv>().reached.add(d, listen)?;
    }
    Ok(())
}

/// Options that `listen` has in `http` alone.
fn own_option(d: &Directive, i: usize, l: &mut listen::Listen) -> ConfResult<bool> {
    match d.arg(i) {
        b"http2" => l.http2 = true,
        b"quic" => {}
        _ => return Ok(false),
    }
    Ok(true)
}
