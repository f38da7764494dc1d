//! What every backend's configuration has in common, its defaults and its inheritance.
//!
//! Each family keeps a [`BackendLoc`] in a slot type of its own, so that `proxy_buffers` and
//! `fastcgi_buffers` have nothing to do with each other.

use crate::bits::next;
use crate::cache::conf::CacheConf;
use crate::family::Family;
use crate::hide::HideList;
use crate::target::Pass;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use weir_core::bind::{self, Bind};
use weir_core::paths::{make_temp_path, TempPath};
use weir_http::conf::CoreLoc;
use weir_http::generation::{HttpConf, LocationConf};
use weir_http::lent::{toward, Lent};
use weir_http::{HttpModule, Request};
use weir_module::{distinct, merge_values, merged, AnyConf, ConfResult, ConfType, Diagnostic};
use weir_module::{SlotVtable, Slots, Val};
use weir_script::template::Template;
use weir_upstream::{Outgoing, SocketOptions, UpstreamMain};

pub(crate) const PAGE_BYTES: u64 = 4096;

/// Words of a directive and the bits that they are.
pub(crate) type Words = [(&'static str, u32)];

/// A family's slot at the location level.
pub(crate) trait BackendConf: ConfType {
    const FAMILY: &'static Family;
    /// What its directives begin with.
    const PREFIX: &'static str;
    /// The words of `…_next_upstream`.
    const NEXT: &'static Words;
    /// What an answer is kept under where it is not said, as nginx's documentation writes it.
    const KEY: &'static str = "";
    /// The default of `…_ssl_name`, in the same way.
    const TLS_NAME: &'static str = "";

    fn backend(&self) -> &BackendLoc;
    fn backend_mut(&mut self) -> &mut BackendLoc;
}

/// Finds a family's configuration in a location.
pub(crate) type ConfOf = fn(&LocationConf) -> &BackendLoc;

pub(crate) fn conf_of<T: BackendConf>(loc: &LocationConf) -> &BackendLoc {
    loc.conf::<T>().backend()
}

/// What every family's module begins with.
pub(crate) const fn module<T: BackendConf>() -> HttpModule {
    HttpModule {
        slots: Base::<T>::SLOTS,
        build: Some(build::<T>),
        dirs: Some(temp_dirs::<T>),
        binds_any_source: Some(binds_any_source::<T>),
        ..HttpModule::EMPTY
    }
}

struct Base<T>(PhantomData<T>);

impl<T: BackendConf> Base<T> {
    /// Merged like any other, but for what a block without a name has from the one around it.
    const SLOTS: &'static [SlotVtable] =
        &[SlotVtable { merge: merge_slot::<T>, ..SlotVtable::of::<T>() }];
}

#[derive(Default)]
pub(crate) struct BackendLoc {
    /// Whose configuration it is; set when it is merged.
    pub(crate) family: Val<&'static Family>,
    pub(crate) pass: Option<Pass>,
    /// Requests are sent over HTTP/2.
    pub(crate) h2: bool,
    /// A body may be sent whose length is not known before.
    pub(crate) streams_unmeasured: bool,
    /// The body that is sent is the configuration's, not the client's.
    pub(crate) own_body: bool,
    /// Answers are compared with the client's conditions.
    pub(crate) compares_conditions: bool,
    /// An answer with 404 is answered by this server's own page.
    pub(crate) intercept_404: bool,
    pub(crate) pass_request_headers: Val<bool>,
    pub(crate) pass_request_body: Val<bool>,
    pub(crate) pass_trailers: Val<bool>,
    pub(crate) request_buffering: Val<bool>,
    /// Something shows when a request was sent.
    pub(crate) notes_sent: OnceLock<()>,
    pub(crate) connect_timeout: Val<u64>,
    pub(crate) send_timeout: Val<u64>,
    pub(crate) read_timeout: Val<u64>,
    pub(crate) buffering: Val<bool>,
    pub(crate) buffer_size: Val<u64>,
    pub(crate) buffers: Val<(u64, u64)>,
    pub(crate) busy_buffers_size: Val<Option<u64>>,
    pub(crate) max_temp_file_size: Val<Option<u64>>,
    pub(crate) temp_file_write_size: Val<Option<u64>>,
    pub(crate) temp_path: Val<Arc<TempPath>>,
    pub(crate) hide_headers: Val<Arc<Vec<Vec<u8>>>>,
    pub(crate) pass_headers: Val<Arc<Vec<Vec<u8>>>>,
    pub(crate) ignore_headers: Val<u32>,
    pub(crate) intercept_errors: Val<bool>,
    pub(crate) next_upstream: Val<u32>,
    pub(crate) next_upstream_tries: Val<u64>,
    pub(crate) next_upstream_timeout: Val<u64>,
    pub(crate) ignore_client_abort: Val<bool>,
    pub(crate) bind: Val<Option<Bind>>,
    pub(crate) socket_keepalive: Val<bool>,
    pub(crate) socket_rcvbuf: Val<u64>,
    pub(crate) socket_sndbuf: Val<u64>,
    pub(crate) force_ranges: Val<bool>,
    pub(crate) limit_rate: Val<Option<Arc<Template>>>,
    /// `…_cache…` and `…_store…`
    pub(crate) cache: CacheConf,
    /// TLS to the servers.
    pub(crate) tls: Outgoing,
    /// An `if` or `limit_except` block: it passes where the block around it does.
    pub(crate) in_unnamed: bool,
    /// `hide` is made.
    pub(crate) compiled: bool,
    /// Made from the above when they are merged.
    pub(crate) hide: Arc<HideList>,
}

/// Written to a temporary file at once where nothing is said of it.
const TEMP_WRITE_BYTES: u64 = 64 * 1024;

impl BackendLoc {
    /// The most of an answer that is held in memory for a slow client.
    pub(crate) fn buffers_bytes(&self) -> u64 {
        self.buffers.0 * self.buffers.1
    }

    pub(crate) fn max_temp_bytes(&self) -> u64 {
        self.max_temp_file_size.unwrap_or(1024 * 1024 * 1024)
    }

    /// The most that is written to it at once; two buffers would mostly be 8 KB.
    pub(crate) fn temp_write_bytes(&self) -> usize {
        let size = self.buffers.1.max(*self.buffer_size);
        self.temp_file_write_size.unwrap_or(TEMP_WRITE_BYTES.max(2 * size)) as usize
    }

    /// Options of a fresh connection that comes from there.
    pub(crate) fn socket_options(&self, bind: Option<SocketAddr>) -> SocketOptions {
        let size = |n: u64| (n > 0).then_some(n as usize);
        SocketOptions {
            bind,
            transparent: self.binds_any_source(),
            keepalive: *self.socket_keepalive,
            rcvbuf: size(*self.socket_rcvbuf),
            sndbuf: size(*self.socket_sndbuf),
        }
    }

    /// The address that connections come from, where it is not the system's choice.
    pub(crate) fn bind(&self, r: &mut Request) -> Option<SocketAddr> {
        self.bind.as_ref().and_then(|b| bind::address(r, b))
    }

    fn binds_any_source(&self) -> bool {
        self.bind.as_ref().is_some_and(|b| b.transparent)
    }

    /// nginx's rules for how the buffers' sizes must fit together.
    fn check_sizes(&self, name: &str) -> ConfResult {
        let fail = |text: &str| Err(Diagnostic::emerg(text.replace("NAME", name)));
        let (num, each) = *self.buffers;
        if num < 2 {
            return fail("there must be at least 2 \"NAME_buffers\"");
        }
        let size = each.max(*self.buffer_size);
        let busy = self.busy_buffers_size.unwrap_or(2 * size);
        if busy < size {
            return fail(
                "\"NAME_busy_buffers_size\" must be equal to or greater than the maximum of \
                 the value of \"NAME_buffer_size\" and one of the \"NAME_buffers\"",
            );
        }
        if busy > (num - 1) * each {
            return fail(
                "\"NAME_busy_buffers_size\" must be less than the size of all \
                 \"NAME_buffers\" minus one buffer",
            );
        }
        if self.temp_file_write_size.is_some_and(|n| n < size) {
            return fail(
                "\"NAME_temp_file_write_size\" must be equal to or greater than the maximum \
                 of the value of \"NAME_buffer_size\" and one of the \"NAME_buffers\"",
            );
        }
        if self.max_temp_file_size.is_some_and(|n| n != 0 && n < size) {
            return fail(
                "\"NAME_max_temp_file_size\" must be equal to zero to disable temporary files \
                 usage or must be equal to or greater than the maximum of the value of \
                 \"NAME_buffer_size\" and one of the \"NAME_buffers\"",
            );
        }
        Ok(())
    }

    fn merge_hidden(&mut self, parent: &BackendLoc, family: &Family) {
        let inherited = !self.hide_headers.is_set() && !self.pass_headers.is_set();
        self.hide_headers.merge(&parent.hide_headers, Arc::default);
        self.pass_headers.merge(&parent.pass_headers, Arc::default);
        self.hide = match inherited && parent.compiled {
            true => Arc::clone(&parent.hide),
            false => Arc::new(HideList::new(family.hidden, &self.hide_headers, &self.pass_headers)),
        };
        self.compiled = true;
    }

    /// Takes over what this level has not set. Where it leads is another matter: see
    /// [`BackendLoc::merge_pass`].
    pub(crate) fn merge(&mut self, parent: &BackendLoc, family: &'static Family) -> ConfResult {
        self.family.set(family);
        let temp_path = || {
            let path = PathBuf::from(format!("{}_temp", family.name));
            TempPath::new(path, [1, 2, 0])
        };
        self.temp_path.merge(&parent.temp_path, temp_path);
        merge_values!(self, parent;
            pass_request_headers = true,
            pass_request_body = true,
            pass_trailers = false,
            request_buffering = true,
            connect_timeout = 60_000,
            send_timeout = 60_000,
            read_timeout = 60_000,
            buffering = true,
            buffer_size = PAGE_BYTES,
            buffers = (8, PAGE_BYTES),
            busy_buffers_size = None,
            max_temp_file_size = None,
            temp_file_write_size = None,
            ignore_headers = 0,
            intercept_errors = false,
            next_upstream = next::ERROR | next::TIMEOUT,
            next_upstream_tries = 0,
            next_upstream_timeout = 0,
            ignore_client_abort = false,
            bind = None,
            socket_keepalive = false,
            socket_rcvbuf = 0,
            socket_sndbuf = 0,
            force_ranges = false,
            limit_rate = None,
        );
        if *self.next_upstream & next::OFF != 0 {
            self.next_upstream.set(next::OFF);
        }
        if family.buffers {
            self.check_sizes(family.name)?;
        }
        self.tls.merge(&parent.tls);
        if !family.ways.converts_head && !self.cache.convert_head.is_set() {
            self.cache.convert_head.set(false);
        }
        self.cache.merge(&parent.cache);
        self.merge_hidden(parent, family);
        Ok(())
    }

    /// A block without a name passes where the one around it does; whether it does so now.
    pub(crate) fn merge_pass(&mut self, parent: &BackendLoc) -> bool {
        let takes = self.in_unnamed && self.pass.is_none();
        if takes {
            self.pass.clone_from(&parent.pass);
        }
        takes
    }
}

/// Merges a slot like any other, but for what a block without a name has from the one around it.
fn merge_slot<T: BackendConf>(
    own: Option<Arc<AnyConf>>,
    outer: Option<&AnyConf>,
    unnamed: bool,
) -> ConfResult<Arc<AnyConf>> {
    merged(own, outer, |own: &mut T, outer: &T| {
        own.backend_mut().in_unnamed = unnamed;
        own.merge(outer)
    })
}

/// The variables that show when a request was sent to a server.
const SHOW_SENT: [&str; 2] = ["upstream_stat_send_finish_time", "upstream_stat_send_time"];

/// The family whose handshakes code may have a say in.
pub(crate) const PROXY: &str = "proxy";

/// Code of handshakes stands where there are some.
fn check_code(main: &Slots, slots: &Slots, may_be_tls: bool) -> ConfResult {
    let Some(code) = main.get::<Lent>().toward.filter(|_| !may_be_tls) else { return Ok(()) };
    let what = match (code.moments)(slots) {
        m if m & toward::CERTIFICATE != 0 => "proxy_ssl_certificate_by_lua*",
        m if m & toward::VERIFY != 0 => "proxy_ssl_verify_by_lua*",
        _ => return Ok(()),
    };
    Err(Diagnostic::emerg(format!("{what} should be used with proxy_pass https url")))
}

/// Makes the temporary directories, and what TLS to servers needs.
fn build<T: BackendConf>(b: &mut weir_http::build::Build) -> ConfResult {
    offer_resolvers::<T>(b);
    let notes_sent = SHOW_SENT.iter().any(|name| b.names_variable(name));
    for slots in b.locations {
        let conf = slots.get::<T>().backend();
        if let Some(pass) = conf.pass.as_ref().filter(|_| conf.family.name == PROXY) {
            check_code(b.main, slots, pass.may_be_tls(&conf.family.schemes))?;
        }
    }
    for conf in distinct::<T>(b.locations) {
        let conf = conf.backend();
        if notes_sent {
            conf.notes_sent.get_or_init(|| ());
        }
        let family: &Family = *conf.family;
        if conf.cache.is_on() && conf.cache.key.is_none() && family.key.is_none() {
            let name = family.name;
            let text = format!("no \"{name}_cache_key\" for \"{name}_cache\"");
            let w = Diagnostic::warn(text);
            b.cf.warnings.push(match conf.cache.cache_at {
                Some(at) => w.at(at),
                None => w,
            });
        }
        if family.buffers {
            make_temp_path(&conf.temp_path, &b.cf.prefix, b.cf.mode)?;
        }
        if conf.pass.as_ref().is_some_and(|p| p.may_be_tls(&family.schemes)) {
            conf.tls.build(b.cf, family.ssl, conf.h2)?;
        }
    }
    Ok(())
}

/// An upstream's names are asked of the resolver where requests are passed to it.
fn offer_resolvers<T: BackendConf>(b: &mut weir_http::build::Build) {
    for slots in b.locations {
        let Some(Pass::Fixed(fixed)) = &slots.get::<T>().backend().pass else { continue };
        let core = slots.get::<CoreLoc>();
        if let Some(resolver) = &*core.resolver {
            let timeout_ms = *core.resolver_timeout;
            b.main.get_mut::<UpstreamMain>().offer(fixed.upstream, resolver, timeout_ms);
        }
    }
}

/// The directories for answers that are too large for memory.
fn temp_dirs<T: BackendConf>(http: &HttpConf) -> Vec<PathBuf> {
    if !T::FAMILY.buffers {
        return Vec::new();
    }
    let mut dirs: Vec<PathBuf> = Vec::new();
    for l in &http.locations {
        let dir = l.conf::<T>().backend().temp_path.dir();
        // Locations have their server's mostly.
        if dirs.last().is_none_or(|last| last != dir) {
            dirs.push(dir.to_path_buf());
        }
    }
    dirs.sort();
    dirs.dedup();
    dirs
}

/// Whether some connections to servers are made from addresses that are not this machine's.
fn binds_any_source<T: BackendConf>(http: &HttpConf) -> bool {
    http.locations.iter().any(|l| l.conf::<T>().backend().binds_any_source())
}
