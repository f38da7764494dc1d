//! Every black-box test, one file per module and aspect.

#![allow(clippy::unwrap_used)]

mod access_allow_deny;
mod access_log;
mod body_reading;
mod client_timeouts;
mod command_line;
mod config_errors;
mod core_misc;
mod error_log;
mod error_page;
mod gzip_module;
mod harness_self;
mod headers_module;
mod http2_answers;
mod http2_bodies;
mod http2_connection;
mod http2_floods;
mod keepalive;
mod limit_conn;
mod limit_req;
mod listen_options;
mod location_selection;
mod map_module;
mod proxy_buffering;
mod proxy_response;
mod proxy_upstream;
mod proxy_uri;
mod proxy_websocket;
mod request_headers;
mod request_limits;
mod request_line;
mod return_answers;
mod rewrite_module;
mod server_name;
mod signals;
mod signals_upgrade;
mod static_conditionals;
mod static_files;
mod static_open_file_cache;
mod static_ranges;
mod stub_status;
mod try_files;
mod variables_core;
mod welcome;
