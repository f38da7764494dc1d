//! The core module's directives: `ngx_http_core_module`.
