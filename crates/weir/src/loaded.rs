//! `load_module`: Weir's modules are built in. Packages write a line for each of their files, used or
//! not; a module that is known by name does nothing without its directives, and those that Weir has not
//! are refused where they stand.

use crate::globals::Global;
use weir_module::{ArgsExt, Cf, ConfResult, Diagnostic, Directive};
use weir_runtime::paths::last_name;

/// By the names of their files, without `ngx_` and `_module`: what Weir has of nginx's dynamic modules and OpenResty's.
const BUILT_IN: &[&str] = &[
    "mail",
    "stream",
    "http_array_var",
    "http_dav_ext",
    "http_cache_purge",
    "http_brotli_filter",
    "http_brotli_static",
    "http_echo",
    "http_encrypted_session",
    "http_fancyindex",
    "http_form_input",
    "http_geoip",
    "http_geoip2",
    "http_headers_more_filter",
    "http_image_filter",
    "http_memc",
    "http_redis",
    "http_redis2",
    "http_set_misc",
    "http_subs_filter",
    "http_srcache_filter",
    "http_xss_filter",
    "http_zstd_filter",
    "http_zstd_static",
    "otel",
    "stream_geoip",
    "stream_geoip2",
];

/// Dynamic modules of nginx, and those that packages bring, whose directives Weir refuses.
const ELSEWHERE: &[&str] = &[
    "http_acme",
    "http_auth_pam",
    "http_auth_spnego",
    "http_auth_ldap",
    "http_js",
    "http_lua",
    "http_modsecurity",
    "http_perl",
    "http_upload",
    "http_uploadprogress",
    "http_upstream_fair",
    "http_vhost_traffic_status",
    "http_xslt_filter",
    "nchan",
    "pagespeed",
    "rtmp",
    "stream_js",
];

/// Blocks behind which nginx loads nothing.
const BLOCKS: [&str; 4] = ["events", "http", "stream", "mail"];

/// `load_module FILE`
pub fn set(cf: &mut Cf, d: &Directive) -> ConfResult {
    if BLOCKS.iter().any(|block| cf.has_had_block(block)) {
        let e = d.error("is specified too late");
        return Err(e.hint("write it above the first block".to_string()));
    }
    let file = String::from_utf8_lossy(last_name(d.arg(0)));
    let module = file.strip_suffix(".so").unwrap_or(&file).to_string();
    if cf.get::<Global>().loaded_modules.contains(&module) {
        return Err(d.bad(0, format!("module \"{module}\" is already loaded")));
    }
    if !is_known(&module) {
        cf.warn(d, format!("module \"{module}\" is not in Weir, \"load_module\" loads nothing"));
        if let Some(w) = cf.warnings.last_mut() {
            w.span = Some(d.arg_span(0));
            w.hint = Some("Weir loads no files; remove it, and what needs the module".into());
        }
    }
    cf.get::<Global>().loaded_modules.push(module);
    Ok(())
}

fn name_of(module: &str) -> &str {
    let name = module.strip_prefix("ngx_").unwrap_or(module);
    name.strip_suffix("_module").unwrap_or(name)
}

/// The development kit `ndk_http_module` is for other modules alone.
fn is_known(module: &str) -> bool {
    let name = name_of(module);
    BUILT_IN.contains(&name) || ELSEWHERE.contains(&name) || module == "ndk_http_module"
}

/// One line of all that are known, once everything has been read: nothing of theirs is missed.
pub fn notice(cf: &mut Cf) {
    let loaded = cf.get::<Global>().loaded_modules.clone();
    let known: Vec<&str> = loaded.iter().map(String::as_str).filter(|m| is_known(m)).collect();
    let (built_in, other): (Vec<&str>, Vec<&str>) =
        known.iter().partition(|m| BUILT_IN.contains(&name_of(m)));
    let part = |names: &[&str], what: &str| {
        (!names.is_empty()).then(|| format!("{} ({what})", names.join(", ")))
    };
    let parts = [part(&built_in, "built in"), part(&other, "not in Weir, and not used")];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if !text.is_empty() {
        let text = format!("\"load_module\" loads nothing: {text}");
        cf.warnings.push(Diagnostic::new(weir_conf::Level::Notice, text));
    }
}
