//! The ordered lists of modules, one for each protocol.

use weir_http::HttpModule;
use weir_mail::MailModule;
use weir_modules::{
    access, addition, auth_basic, auth_request, autoindex, browser, charset, dav, dav_ext,
    empty_gif, geo, gunzip, gzip, gzip_ok, gzip_static, headers, index, internal_redirect,
    limit_conn, limit_req, log, map, mirror, not_modified, random_index, range, realip, referer,
    rewrite, secure_link, slice, split_clients, ssi, ssl, static_files, stub_status, sub_filter,
    try_files, userid, welcome,
};
use weir_openresty::{array_var, headers_more, set_misc};
use weir_stream::StreamModule;

/// Every module. Handlers of a phase and filters run in this order.
pub const MODULES: &[&HttpModule] = &[
    &weir_http::core_rows::MODULE,
    &weir_http::h2::MODULE,
    &weir_http::core_rows::EARLY,
    &weir_http::core_rows::SYMLINKS,
    &weir_backend::UPSTREAM,
    &weir_backend::UPSTREAM_HTTP_ONLY[0],
    &weir_backend::UPSTREAM_HTTP_ONLY[1],
    &weir_backend::STICKY,
    &log::MODULE,
    &gzip_ok::MODULE,
    &rewrite::MODULE,
    &set_misc::MODULE,
    &array_var::MODULE,
    &ssl::MODULE,
    &ssl::OF_HTTP,
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
    &browser::MODULE,
    &stub_status::MODULE,
    &welcome::MODULE,
    &empty_gif::MODULE,
    &dav::MODULE,
    &dav_ext::MODULE,
    &internal_redirect::MODULE,
    &mirror::MODULE,
    &try_files::MODULE,
    &weir_backend::PROXY,
    &weir_backend::FASTCGI,
    &weir_backend::UWSGI,
    &weir_backend::SCGI,
    &weir_backend::GRPC,
    &weir_backend::MEMCACHED,
    &weir_backend::TUNNEL,
    &weir_backend::CACHE,
    // Content, in the order it is tried.
    &random_index::MODULE,
    &gzip_static::MODULE,
    &index::MODULE,
    &autoindex::MODULE,
    &static_files::MODULE,
    // Filters, from the first that sees a response to the last.
    &slice::MODULE,
    &not_modified::MODULE,
    &headers_more::MODULE,
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

/// Every module of `stream`. Handlers of a phase run in this order.
pub const STREAM: &[&StreamModule] = &[
    &weir_stream::CORE,
    &weir_stream::COMMON,
    &weir_stream::UPSTREAM,
    &log::STREAM,
    &ssl::STREAM,
    &ssl::OF_STREAM,
    &realip::STREAM,
    &limit_conn::STREAM,
    &access::STREAM,
    &geo::STREAM,
    &map::STREAM,
    &split_clients::STREAM,
    &weir_stream::SET,
    &weir_stream::PREREAD,
    // Content, of which a server has one.
    &weir_stream::RETURN,
    &weir_stream::PASS,
    &weir_stream::PROXY,
];

/// Every module of `mail`.
pub const MAIL: &[&MailModule] = &[
    &weir_mail::CORE,
    &weir_mail::COMMON,
    &weir_mail::PROTOCOLS,
    &ssl::MAIL,
    &weir_mail::AUTH_HTTP,
    &weir_mail::PROXY,
    &realip::MAIL,
];

/// What `weir -V` lists, in nginx's words.
pub const CONFIGURE_ARGUMENTS: &[&str] = &[
    "--with-threads",
    "--with-http_v2_module",
    "--with-http_addition_module",
    "--with-http_auth_request_module",
    "--with-http_dav_module",
    "--with-http_gunzip_module",
    "--with-http_gzip_static_module",
    "--with-http_random_index_module",
    "--with-http_realip_module",
    "--with-http_secure_link_module",
    "--with-http_slice_module",
    "--with-http_ssl_module",
    "--with-http_stub_status_module",
    "--with-http_sub_module",
    "--with-mail",
    "--with-mail_ssl_module",
    "--with-stream",
    "--with-stream_realip_module",
    "--with-stream_ssl_module",
    "--with-stream_ssl_preread_module",
];
