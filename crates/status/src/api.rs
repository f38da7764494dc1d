//! `api`: what modules report, as JSON, by paths (NGINX Plus's `ngx_http_api_module`).

use weir_http::HttpModule;

/// The directive.
pub const MODULE: HttpModule = HttpModule::EMPTY;
