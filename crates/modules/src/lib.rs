//! nginx's HTTP modules, one file each. This is the one ordered list.

mod access;
mod addition;
mod auth_basic;
mod auth_request;
mod autoindex;
#[macro_use]
mod cache;
#[macro_use]
mod backend;
mod charset;
mod directory;
mod empty_gif;
mod fastcgi;
mod files;
mod geo;
mod grpc;
mod gunzip;
mod gzip;
mod gzip_ok;
mod gzip_static;
mod headers;
mod index;
mod limit_conn;
mod limit_req;
mod limits;
mod log;
mod map;
mod memcached;
mod mime;
mod mirror;
mod not_modified;
mod proxy;
mod random_index;
mod range;
mod realip;
mod referer;
mod rewrite;
mod scgi;
mod secure_link;
mod slice;
mod split_clients;
mod ssi;
mod ssl;
mod static_files;
mod stub_status;
mod sub_filter;
mod try_files;
mod userid;
mod util;
mod uwsgi;
mod welcome;

use std::path::PathBuf;
use weir_http::generation::Generation;
use weir_http::HttpModule;

/// Every module. Handlers of a phase and filters run in this order.
pub const MODULES: &[&HttpModule] = &[
    &weir_http::core_rows::MODULE,
    &weir_http::h2::MODULE,
    &weir_http::core_rows::EARLY,
    &weir_http::core_rows::SYMLINKS,
    &weir_upstream::MODULE,
    &log::MODULE,
    &gzip_ok::MODULE,
    &rewrite::MODULE,
    &ssl::MODULE,
    &realip::MODULE,
    &access::MODULE,
    &auth_basic::MODULE,
    &auth_request::MODULE,
    &limit_req::MODULE,
    &limit_conn::MODULE,
    &geo::MODULE,
    &map::MODULE,
    &split_clients::MODULE,
    &secure_link::MODULE,
    &referer::MODULE,
    &stub_status::MODULE,
    &welcome::MODULE,
    &empty_gif::MODULE,
    &mirror::MODULE,
    &try_files::MODULE,
    &proxy::MODULE,
    &proxy::COMMON[0],
    &proxy::COMMON[1],
    &proxy::COMMON[2],
    &proxy::COMMON[3],
    &proxy::COMMON[4],
    &fastcgi::MODULE,
    &fastcgi::COMMON[0],
    &fastcgi::COMMON[1],
    &fastcgi::COMMON[2],
    &fastcgi::COMMON[3],
    &uwsgi::MODULE,
    &uwsgi::COMMON[0],
    &uwsgi::COMMON[1],
    &uwsgi::COMMON[2],
    &uwsgi::COMMON[3],
    &uwsgi::COMMON[4],
    &scgi::MODULE,
    &scgi::COMMON[0],
    &scgi::COMMON[1],
    &scgi::COMMON[2],
    &scgi::COMMON[3],
    &grpc::MODULE,
    &grpc::COMMON[0],
    &grpc::COMMON[1],
    &grpc::COMMON[2],
    &memcached::MODULE,
    &memcached::COMMON[0],
    &cache::MODULE,
    // Content, in the order it is tried.
    &random_index::MODULE,
    &gzip_static::MODULE,
    &index::MODULE,
    &autoindex::MODULE,
    &static_files::MODULE,
    // Filters, from the first that sees a response to the last.
    &slice::MODULE,
    &not_modified::MODULE,
    &headers::MODULE,
    &userid::MODULE,
    &gunzip::MODULE,
    &addition::MODULE,
    &sub_filter::MODULE,
    &charset::MODULE,
    &ssi::MODULE,
    &addition::AFTER,
    &slice::NEXT,
    &gzip::MODULE,
    &range::MODULE,
    &headers::TRAILERS,
];

/// What `weir -V` lists, in nginx's words.
pub const CONFIGURE_ARGUMENTS: &[&str] = &[
    "--with-threads",
    "--with-http_v2_module",
    "--with-http_addition_module",
    "--with-http_auth_request_module",
    "--with-http_gunzip_module",
    "--with-http_gzip_static_module",
    "--with-http_random_index_module",
    "--with-http_realip_module",
    "--with-http_secure_link_module",
    "--with-http_slice_module",
    "--with-http_ssl_module",
    "--with-http_stub_status_module",
    "--with-http_sub_module",
    "--without-http_browser_module",
    "--without-http_tunnel_module",
    "--without-mail_pop3_module",
    "--without-mail_imap_module",
    "--without-mail_smtp_module",
];

/// Whether connections to servers are made from addresses that are not this machine's.
pub fn binds_any_source(gen: &Generation) -> bool {
    backend::binds_any_source::<proxy::ProxyLoc>(gen)
        || backend::binds_any_source::<fastcgi::FastcgiLoc>(gen)
        || backend::binds_any_source::<uwsgi::UwsgiLoc>(gen)
        || backend::binds_any_source::<scgi::ScgiLoc>(gen)
        || backend::binds_any_source::<memcached::MemcachedLoc>(gen)
        || backend::binds_any_source::<grpc::GrpcLoc>(gen)
}

/// What goes on in the background once a generation serves.
pub fn serve(gen: &Generation) {
    cache::serve(gen);
}

/// Directories for temporary files besides the core's.
pub fn temp_dirs(gen: &Generation) -> Vec<PathBuf> {
    let mut dirs = backend::temp_dirs::<proxy::ProxyLoc>(gen);
    dirs.extend(backend::temp_dirs::<fastcgi::FastcgiLoc>(gen));
    dirs.extend(backend::temp_dirs::<uwsgi::UwsgiLoc>(gen));
    dirs.extend(backend::temp_dirs::<scgi::ScgiLoc>(gen));
    dirs.extend(cache::dirs(gen));
    dirs
}
