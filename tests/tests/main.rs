//! Every black-box test, one file per module and aspect.

#![allow(clippy::unwrap_used)]

mod access_allow_deny;
mod access_log;
mod body_reading;
mod client_timeouts;
mod error_page;
mod gzip_module;
mod harness_self;
mod headers_module;
mod keepalive;
mod limit_conn;
mod limit_req;
mod location_selection;
mod map_module;
mod proxy_buffering;
mod proxy_response;
mod proxy_uri;
mod request_headers;
mod request_limits;
mod request_line;
mod return_answers;
mod rewrite_module;
mod server_name;
mod static_conditionals;
mod static_files;
mod static_open_file_cache;
mod static_ranges;
mod stub_status;
mod try_files;
