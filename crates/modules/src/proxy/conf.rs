//! The proxy's configuration, its defaults and its inheritance.

use super::headers::{HeaderPlan, HideList, SetHeader};
use super::rewrite::{CookieFlags, Rewrite};
use super::target::Pass;
use crate::cache::CacheConf;
use crate::ssl::outgoing::Outgoing;
use std::path::PathBuf;
use std::sync::Arc;
use weir_http::conf::{CoreLoc, TempPath};
use weir_http::Request;
use weir_module::{merge_values, slot, ConfResult, ConfType, Diagnostic, Level, Val};
use weir_script::template::Template;
use weir_upstream::link::SocketOptions;
use weir_upstream::UpstreamMain;

pub const PAGE_BYTES: u64 = 4096;

/// `proxy_next_upstream`, as bits.
pub mod next {
    pub const ERROR: u32 = 1;
    pub const TIMEOUT: u32 = 1 << 1;
    pub const INVALID_HEADER: u32 = 1 << 2;
    pub const HTTP_500: u32 = 1 << 3;
    pub const HTTP_502: u32 = 1 << 4;
    pub const HTTP_503: u32 = 1 << 5;
    pub const HTTP_504: u32 = 1 << 6;
    pub const HTTP_403: u32 = 1 << 7;
    pub const HTTP_404: u32 = 1 << 8;
    pub const HTTP_429: u32 = 1 << 9;
    pub const NON_IDEMPOTENT: u32 = 1 << 10;
    pub const OFF: u32 = 1 << 11;
    /// Never configured: there was nobody to ask.
    pub const NO_LIVE: u32 = 1 << 12;
    pub const UPDATING: u32 = 1 << 13;
}

/// `proxy_ignore_headers`, as bits.
pub mod ignore {
    pub const REDIRECT: u32 = 1;
    pub const EXPIRES: u32 = 1 << 1;
    pub const LIMIT_RATE: u32 = 1 << 2;
    pub const BUFFERING: u32 = 1 << 3;
    pub const CHARSET: u32 = 1 << 4;
    pub const EXPIRES_FIELD: u32 = 1 << 5;
    pub const CACHE_CONTROL: u32 = 1 << 6;
    pub const SET_COOKIE: u32 = 1 << 7;
    pub const VARY: u32 = 1 << 8;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpVersion {
    V10,
    V11,
    V2,
}

/// `proxy_bind`.
#[derive(Clone, Debug)]
pub struct Bind {
    pub from: BindAddr,
    /// The address need not be this machine's.
    pub transparent: bool,
}

#[derive(Clone, Debug)]
pub enum BindAddr {
    Addr(std::net::SocketAddr),
    Vars(Arc<Template>),
}

#[derive(Default)]
pub struct ProxyLoc {
    pub pass: Option<Pass>,
    /// The location's name that the URI part of `proxy_pass` stands for.
    pub location: Vec<u8>,
    pub method: Val<Option<Arc<Template>>>,
    pub set_headers: Val<Arc<Vec<SetHeader>>>,
    pub set_body: Val<Option<Arc<Template>>>,
    pub http_version: Val<HttpVersion>,
    pub pass_request_headers: Val<bool>,
    pub pass_request_body: Val<bool>,
    pub pass_trailers: Val<bool>,
    pub request_buffering: Val<bool>,
    pub connect_timeout: Val<u64>,
    pub send_timeout: Val<u64>,
    pub read_timeout: Val<u64>,
    pub buffering: Val<bool>,
    pub buffer_size: Val<u64>,
    pub buffers: Val<(u64, u64)>,
    pub busy_buffers_size: Val<Option<u64>>,
    pub max_temp_file_size: Val<Option<u64>>,
    pub temp_file_write_size: Val<Option<u64>>,
    pub temp_path: Val<Arc<TempPath>>,
    pub hide_headers: Val<Arc<Vec<Vec<u8>>>>,
    pub pass_headers: Val<Arc<Vec<Vec<u8>>>>,
    pub ignore_headers: Val<u32>,
    /// `proxy_redirect off` is false; the rules are the default one when none are given.
    pub redirect: Val<bool>,
    pub redirects: Option<Arc<Vec<Rewrite>>>,
    pub cookie_domains: Val<Arc<Vec<Rewrite>>>,
    pub cookie_paths: Val<Arc<Vec<Rewrite>>>,
    pub cookie_flags: Val<Arc<Vec<CookieFlags>>>,
    pub intercept_errors: Val<bool>,
    pub next_upstream: Val<u32>,
    pub next_upstream_tries: Val<u64>,
    pub next_upstream_timeout: Val<u64>,
    pub ignore_client_abort: Val<bool>,
    pub bind: Val<Option<Bind>>,
    pub socket_keepalive: Val<bool>,
    pub socket_rcvbuf: Val<u64>,
    pub socket_sndbuf: Val<u64>,
    pub force_ranges: Val<bool>,
    pub limit_rate: Val<Option<Arc<Template>>>,
    /// `proxy_cache…` and `proxy_store…`
    pub cache: CacheConf,
    /// TLS to the servers.
    pub tls: Outgoing,
    /// An `if` or `limit_except` block: it passes where the block around it does.
    pub in_unnamed: bool,
    /// `plan` and `hide` are made.
    pub compiled: bool,
    /// Made from the above when they are merged.
    pub plan: Arc<HeaderPlan>,
    /// The same for a request whose answer may be kept.
    pub cache_plan: Arc<HeaderPlan>,
    pub hide: Arc<HideList>,
}

impl ProxyLoc {
    /// The most of an answer that is held in memory for a slow client.
    pub fn buffers_bytes(&self) -> u64 {
        self.buffers.0 * self.buffers.1
    }

    pub fn max_temp_bytes(&self) -> u64 {
        self.max_temp_file_size.unwrap_or(1024 * 1024 * 1024)
    }

    /// The most that is written to it at once.
    pub fn temp_write_bytes(&self) -> usize {
        let size = self.buffers.1.max(*self.buffer_size);
        self.temp_file_write_size.unwrap_or(2 * size) as usize
    }

    pub fn is_h2(&self) -> bool {
        *self.http_version == HttpVersion::V2
    }

    /// A body may be sent whose length is not known before.
    pub fn streams_unmeasured(&self) -> bool {
        *self.http_version != HttpVersion::V10
    }

    pub fn rewrites_cookies(&self) -> bool {
        !(self.cookie_domains.is_empty()
            && self.cookie_paths.is_empty()
            && self.cookie_flags.is_empty())
    }

    /// Options of a fresh connection for this request.
    pub fn socket_options(&self, r: &mut Request) -> SocketOptions {
        let size = |n: u64| (n > 0).then_some(n as usize);
        let bind = match &*self.bind {
            None => None,
            Some(Bind { from: BindAddr::Addr(a), .. }) => Some(*a),
            Some(Bind { from: BindAddr::Vars(t), .. }) => super::target::local_address(r, t),
        };
        SocketOptions {
            bind,
            transparent: self.bind.as_ref().is_some_and(|b| b.transparent),
            keepalive: *self.socket_keepalive,
            rcvbuf: size(*self.socket_rcvbuf),
            sndbuf: size(*self.socket_sndbuf),
        }
    }

    /// nginx's rules for how the buffers' sizes must fit together.
    fn check_sizes(&self) -> ConfResult {
        let fail = |text: &str| Err(Diagnostic::emerg(text.to_string()));
        let (num, each) = *self.buffers;
        if num < 2 {
            return fail("there must be at least 2 \"proxy_buffers\"");
        }
        let size = each.max(*self.buffer_size);
        let busy = self.busy_buffers_size.unwrap_or(2 * size);
        if busy < size {
            return fail(
                "\"proxy_busy_buffers_size\" must be equal to or greater than the maximum of \
                 the value of \"proxy_buffer_size\" and one of the \"proxy_buffers\"",
            );
        }
        if busy > (num - 1) * each {
            return fail(
                "\"proxy_busy_buffers_size\" must be less than the size of all \
                 \"proxy_buffers\" minus one buffer",
            );
        }
        if self.temp_file_write_size.is_some_and(|n| n < size) {
            return fail(
                "\"proxy_temp_file_write_size\" must be equal to or greater than the maximum \
                 of the value of \"proxy_buffer_size\" and one of the \"proxy_buffers\"",
            );
        }
        if self.max_temp_file_size.is_some_and(|n| n != 0 && n < size) {
            return fail(
                "\"proxy_max_temp_file_size\" must be equal to zero to disable temporary files \
                 usage or must be equal to or greater than the maximum of the value of \
                 \"proxy_buffer_size\" and one of the \"proxy_buffers\"",
            );
        }
        Ok(())
    }

    /// The rules come from the nearest level that has any; a plain `proxy_pass` makes its own.
    fn merge_redirect(&mut self, parent: &ProxyLoc) {
        self.redirect.merge(&parent.redirect, || true);
        if !*self.redirect {
            return;
        }
        if self.redirects.is_none() {
            self.redirects = parent.redirects.clone().or_else(|| {
                let rule = self.pass.as_ref()?.default_rule(&self.location)?;
                Some(Arc::new(vec![rule]))
            });
        }
    }

    fn merge_headers(&mut self, parent: &ProxyLoc) {
        let inherited = !self.set_headers.is_set();
        self.set_headers.merge(&parent.set_headers, Arc::default);
        self.plan = match inherited && parent.compiled {
            true => Arc::clone(&parent.plan),
            false => Arc::new(HeaderPlan::new(&self.set_headers)),
        };
        if self.cache.is_on() {
            self.cache_plan = Arc::new(HeaderPlan::for_cache(&self.set_headers));
        }
        let inherited = !self.hide_headers.is_set() && !self.pass_headers.is_set();
        self.hide_headers.merge(&parent.hide_headers, Arc::default);
        self.pass_headers.merge(&parent.pass_headers, Arc::default);
        self.hide = match inherited && parent.compiled {
            true => Arc::clone(&parent.hide),
            false => Arc::new(HideList::new(&self.hide_headers, &self.pass_headers)),
        };
        self.compiled = true;
    }
}

fn default_temp_path() -> Arc<TempPath> {
    Arc::new(TempPath { path: PathBuf::from("proxy_temp"), levels: [1, 2, 0] })
}

impl ConfType for ProxyLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &ProxyLoc) -> ConfResult {
        merge_values!(self, parent;
            method = None,
            set_body = None,
            http_version = HttpVersion::V11,
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
            temp_path = default_temp_path(),
            ignore_headers = 0,
            cookie_domains = Arc::default(),
            cookie_paths = Arc::default(),
            cookie_flags = Arc::default(),
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
        self.check_sizes()?;
        if self.in_unnamed && self.pass.is_none() {
            self.pass.clone_from(&parent.pass);
            self.location.clone_from(&parent.location);
        }
        self.tls.merge(&parent.tls);
        self.merge_redirect(parent);
        self.cache.merge(&parent.cache);
        self.merge_headers(parent);
        Ok(())
    }
}

/// Makes the temporary directories.
pub fn build(b: &mut weir_http::build::Build) -> ConfResult {
    let prefix = b.cf.prefix.clone();
    for slots in b.locations.iter_mut() {
        let Some(core) = slots.find::<CoreLoc>() else { continue };
        let resolver = Option::clone(&core.resolver);
        let timeout_ms = *core.resolver_timeout;
        let proxy = slots.get_mut::<ProxyLoc>();
        if let (Some(Pass::Fixed(fixed)), Some(resolver)) = (&proxy.pass, &resolver) {
            b.main.get_mut::<UpstreamMain>().offer(fixed.upstream, resolver, timeout_ms);
        }
        let temp = &proxy.temp_path;
        if temp.path.is_relative() {
            let full = TempPath { path: prefix.join(&temp.path), levels: temp.levels };
            proxy.temp_path.set(Arc::new(full));
        }
        weir_http::core_rows::make_temp_dir(&proxy.temp_path)?;
        if proxy.pass.as_ref().is_some_and(Pass::may_be_tls) {
            proxy.tls.h2 = *proxy.http_version == HttpVersion::V2;
            proxy.tls.build(b.cf, "proxy_ssl")?;
        }
    }
    Ok(())
}
