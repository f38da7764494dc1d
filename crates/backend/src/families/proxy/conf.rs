//! The proxy's own configuration: what HTTP has and other protocols have not.

use super::headers::{HeaderPlan, SetHeader};
use super::rewrite::{default_rule, CookieFlags, Rewrite};
use crate::conf::BackendLoc;
use crate::target::{Pass, Schemes};
use std::sync::Arc;
use weir_module::{merge_values, Val};
use weir_script::template::Template;

/// How URLs of `proxy_pass` begin.
pub(crate) const SCHEMES: Schemes = Schemes {
    plain: "http://",
    tls: Some("https://"),
    required: true,
    ports: (80, 443),
    uri: true,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HttpVersion {
    V10,
    V11,
    V2,
}

#[derive(Default)]
pub(crate) struct ProxyLoc {
    pub(crate) backend: BackendLoc,
    /// The location's name that the URI part of `proxy_pass` stands for.
    pub(crate) location: Vec<u8>,
    pub(crate) method: Val<Option<Arc<Template>>>,
    pub(crate) set_headers: Val<Arc<Vec<SetHeader>>>,
    pub(crate) set_body: Val<Option<Arc<Template>>>,
    pub(crate) http_version: Val<HttpVersion>,
    /// `proxy_redirect off` is false; the rules are the default one when none are given.
    pub(crate) redirect: Val<bool>,
    pub(crate) redirects: Option<Arc<Vec<Rewrite>>>,
    pub(crate) cookie_domains: Val<Arc<Vec<Rewrite>>>,
    pub(crate) cookie_paths: Val<Arc<Vec<Rewrite>>>,
    pub(crate) cookie_flags: Val<Arc<Vec<CookieFlags>>>,
    /// `plan` is made.
    pub(crate) compiled: bool,
    /// Made from the above when they are merged.
    pub(crate) plan: Arc<HeaderPlan>,
    /// The same for a request whose answer may be kept.
    pub(crate) cache_plan: Arc<HeaderPlan>,
    /// What follows the URI, from the version to the end of the `Host` line, where it is always the same.
    pub(crate) behind_uri: Box<[u8]>,
}

impl ProxyLoc {
    /// Takes over what this level has not set of its own fields.
    pub(crate) fn merge_own(&mut self, parent: &ProxyLoc) {
        merge_values!(self, parent;
            method = None,
            set_body = None,
            http_version = HttpVersion::V11,
            cookie_domains = Arc::default(),
            cookie_paths = Arc::default(),
            cookie_flags = Arc::default(),
        );
    }

    /// What follows from what both it and the backend's part have taken over.
    pub(crate) fn settle(&mut self, parent: &ProxyLoc) {
        self.backend.h2 = *self.http_version == HttpVersion::V2;
        self.backend.streams_unmeasured = *self.http_version != HttpVersion::V10;
        self.backend.own_body = self.set_body.is_some() || !*self.backend.pass_request_body;
        if self.backend.merge_pass(&parent.backend) {
            self.location.clone_from(&parent.location);
        }
        self.merge_redirect(parent);
        self.merge_headers(parent);
    }

    /// A body may be sent whose length is not known before.
    pub(crate) fn streams_unmeasured(&self) -> bool {
        self.backend.streams_unmeasured
    }

    pub(crate) fn rewrites_cookies(&self) -> bool {
        !(self.cookie_domains.is_empty()
            && self.cookie_paths.is_empty()
            && self.cookie_flags.is_empty())
    }

    /// The rules come from the nearest level that has any; a plain `proxy_pass` makes its own.
    fn merge_redirect(&mut self, parent: &ProxyLoc) {
        self.redirect.merge(&parent.redirect, || true);
        if !*self.redirect {
            return;
        }
        if self.redirects.is_none() {
            self.redirects = parent.redirects.clone().or_else(|| {
                let rule = default_rule(self.backend.pass.as_ref()?, &self.location)?;
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
        let cache = &mut self.backend.cache;
        if cache.is_on() {
            let names = [&b"Range"[..], b"If-Range"];
            let is_range = |name: &[u8]| names.iter().any(|n| n.eq_ignore_ascii_case(name));
            let has_range = self.set_headers.iter().any(|h| is_range(&h.name));
            cache.takes_parts = *cache.standard && !has_range;
            let plan = HeaderPlan::for_cache(&self.set_headers, cache.takes_parts);
            self.cache_plan = Arc::new(plan);
        }
        self.compiled = true;
        self.behind_uri = match &self.backend.pass {
            Some(Pass::Fixed(fixed)) if !self.plan.sets_host() => {
                let version = self.version_text();
                [version, b"Host: ", &fixed.parts.host, b"\r\n"].concat().into()
            }
            _ => Box::default(),
        };
    }

    /// The end of the request line.
    pub(crate) fn version_text(&self) -> &'static [u8] {
        match self.streams_unmeasured() {
            true => b" HTTP/1.1\r\n",
            false => b" HTTP/1.0\r\n",
        }
    }
}
