//! The core module's configuration: what the engine itself reads. Rows are in `core_rows`.

use crate::flow::Handler;
use crate::reading::{Here, ServerBuild};
use crate::request::Request;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_core::generation::Virtual;
use weir_core::listen::Reached;
use weir_core::paths::TempPath;
use weir_core::registry::VarRegistry;
use weir_core::Session;
use weir_module::{merge_values, merged, slot, ConfResult, ConfType, Level, SlotVtable, Val};
use weir_runtime::paths;
use weir_script::template::Template;
use weir_wire::http1::request::Limits;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerTokens {
    On,
    Off,
    Build,
}

/// `satisfy`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Satisfy {
    /// Every access handler must let the request by.
    All,
    /// One is enough.
    Any,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lingering {
    Off,
    On,
    Always,
}

/// `if_modified_since`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfModifiedSince {
    /// The field is not looked at.
    Off,
    /// The times must be the same.
    Exact,
    /// Or the client's later.
    Before,
}

/// `aio`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aio {
    /// Files are read by the worker itself, which waits for the disk.
    Off,
    /// Reads may be handed to the thread pool.
    Threads,
}

/// `client_body_in_file_only`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyInFile {
    /// Only what does not fit in memory.
    Off,
    /// Always, and the file stays.
    On,
    /// Always, and it goes with the request.
    Clean,
}

/// One status of an `error_page`.
#[derive(Clone)]
pub struct ErrorPage {
    /// What the page stands for.
    pub status: u16,
    /// `=200`: another status; `=` alone is `Some(0)`: whatever the page answers.
    pub(crate) overwrite: Option<u16>,
    /// A path, a named location or a URL.
    pub target: Template,
    /// What follows the `?` of a path.
    pub args: Option<Template>,
}

/// One argument of `try_files` but the last.
#[derive(Clone)]
pub struct TryFile {
    /// Below the root.
    pub path: Template,
    /// Ends in `/`: a directory is looked for.
    pub directory: bool,
}

/// The last argument of `try_files`.
#[derive(Clone)]
pub enum TryLast {
    /// An internal redirect.
    Uri(Template),
    /// `@name`, as written.
    Named(Vec<u8>),
    /// `=404`
    Status(u16),
}

/// `try_files`
#[derive(Clone)]
pub struct TryFiles {
    /// In the order in which they are looked for.
    pub files: Vec<TryFile>,
    /// Where the request goes when none is there.
    pub last: TryLast,
}

/// Texts of which one must be neither empty nor `0`.
pub type Conditions = Arc<Vec<Template>>;

/// `disable_symlinks on|if_not_owner [from=…]`
#[derive(Debug)]
pub(crate) struct DisableSymlinks {
    pub(crate) same_owner: bool,
    pub(crate) from: Option<Template>,
}

pub(crate) type Types = HashMap<Box<[u8]>, Box<[u8]>, foldhash::fast::RandomState>;

/// `open_file_cache`, of each worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFileCache {
    /// Files; the one that was used longest ago goes first.
    pub max: usize,
    /// After so long without use one goes in any case.
    pub inactive_secs: u64,
}

/// `http` level.
#[derive(Default)]
pub(crate) struct CoreMain {
    pub vars: VarRegistry<Request>,
    pub servers: Vec<ServerBuild>,
    pub(crate) location_count: usize,
    /// The location being read.
    pub here: Here,
}

impl ConfType for CoreMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// `server` level.
#[derive(Default)]
pub struct CoreSrv {
    /// `listen` and `server_name`.
    pub reached: Reached,
    pub(crate) client_header_timeout: Val<u64>,
    pub(crate) client_header_buffer_size: Val<u64>,
    pub(crate) large_client_header_buffers: Val<(u32, u64)>,
    pub(crate) max_headers: Val<usize>,
    pub(crate) ignore_invalid_headers: Val<bool>,
    pub(crate) underscores_in_headers: Val<bool>,
    pub(crate) merge_slashes: Val<bool>,
    pub(crate) client_body_early_read: Val<Conditions>,
    /// An address of its `listen` is not listened on.
    pub(crate) left_out: bool,
    /// CONNECT is answered somewhere in it.
    pub allows_connect: bool,
    /// No location is looked for where CONNECT is asked for: the server's own level decides and answers.
    pub keeps_connect: bool,
    pub(crate) connection_pool_size: Val<u64>,
    pub(crate) request_pool_size: Val<u64>,
    /// The directives above that bound a head, as its parser takes them.
    pub limits: Limits,
    /// What accepting a connection needs; its TLS is made when the configuration is built.
    pub base: Virtual,
}

impl ConfType for CoreSrv {
    const LEVEL: Level = Level::Server;
    slot!();
    fn merge(&mut self, parent: &CoreSrv) -> ConfResult {
        merge_values!(self, parent;
            client_header_timeout = 60_000,
            client_header_buffer_size = 1024,
            large_client_header_buffers = (4, 8192),
            max_headers = 1000,
            ignore_invalid_headers = true,
            underscores_in_headers = false,
            merge_slashes = true,
            client_body_early_read = Arc::default(),
            connection_pool_size = 512,
            request_pool_size = 4096,
        );
        self.limits = Limits {
            first_buffer_bytes: *self.client_header_buffer_size as usize,
            large_buffer_bytes: self.large_client_header_buffers.1 as usize,
            large_buffers: self.large_client_header_buffers.0,
            max_headers: *self.max_headers,
            ignore_invalid_headers: *self.ignore_invalid_headers,
            underscores_in_headers: *self.underscores_in_headers,
        };
        Ok(())
    }
}

/// `location` level.
#[derive(Default)]
pub struct CoreLoc {
    /// The methods `limit_except` lets through, and where it sends the others.
    pub limit_except: Option<(u32, usize)>,
    /// `root` or `alias`, with the prefix where it is relative.
    pub root: Val<Arc<Template>>,
    /// The root is an `alias`: the location's name is cut from the URI.
    pub alias: Val<bool>,
    /// In a regex location an alias is the whole path.
    pub alias_is_whole: bool,
    /// Where the root begins if it has variables and is relative once they are known.
    pub root_begins: Option<Arc<[u8]>>,
    /// The name an alias cuts from the URI: of the location that sets it.
    pub alias_name: Option<Vec<u8>>,
    /// MIME types by extensions in lower case.
    pub types: Val<Arc<Types>>,
    /// Of files whose extension has no type.
    pub default_type: Val<Vec<u8>>,
    /// Of the module that has taken the location over; `None`: files.
    pub handler: Option<Handler>,
    /// A location whose name ends in `/` answers the name without it by a redirect.
    pub auto_redirect: bool,
    pub(crate) client_max_body_size: Val<u64>,
    /// Bytes.
    pub client_body_buffer_size: Val<u64>,
    /// Milliseconds.
    pub client_body_timeout: Val<u64>,
    pub(crate) client_body_temp_path: Val<Arc<TempPath>>,
    /// Also tells whether bodies' files stay.
    pub client_body_in_file_only: Val<BodyInFile>,
    pub(crate) client_body_in_single_buffer: Val<bool>,
    /// Of the access phase.
    pub satisfy: Val<Satisfy>,
    pub(crate) auth_delay: Val<u64>,
    /// Clients get 404.
    pub internal: Val<bool>,
    pub(crate) lingering_close: Val<Lingering>,
    pub(crate) lingering_time: Val<u64>,
    pub(crate) lingering_timeout: Val<u64>,
    pub(crate) reset_timedout_connection: Val<bool>,
    pub(crate) absolute_redirect: Val<bool>,
    pub(crate) server_name_in_redirect: Val<bool>,
    pub(crate) port_in_redirect: Val<bool>,
    pub(crate) msie_padding: Val<bool>,
    pub(crate) msie_refresh: Val<bool>,
    /// Files that are not there are errors, for the log.
    pub log_not_found: Val<bool>,
    pub(crate) log_subrequest: Val<bool>,
    pub(crate) subrequest_output_buffer_size: Val<u64>,
    /// Where the request goes once it has been answered.
    pub post_action: Val<Option<Vec<u8>>>,
    pub(crate) recursive_error_pages: Val<bool>,
    pub(crate) server_tokens: Val<ServerTokens>,
    /// What is made of the field.
    pub if_modified_since: Val<IfModifiedSince>,
    /// More of them in a request, and the whole is sent; 0: none is looked at.
    pub max_ranges: Val<u64>,
    pub(crate) chunked_transfer_encoding: Val<bool>,
    /// Files are answered with one.
    pub etag: Val<bool>,
    pub(crate) error_pages: Val<Arc<Vec<ErrorPage>>>,
    /// Not inherited.
    pub try_files: Option<TryFiles>,
    pub(crate) keepalive_time: Val<u64>,
    pub(crate) keepalive_timeout: Val<u64>,
    pub(crate) keepalive_min_timeout: Val<u64>,
    /// Seconds for the Keep-Alive header, when it is to be sent.
    pub(crate) keepalive_header: Val<Option<u64>>,
    pub(crate) keepalive_requests: Val<u64>,
    /// Bits: 1 msie6, 2 safari; 0 none.
    pub(crate) keepalive_disable: Val<u8>,
    /// Milliseconds in which a client must take something.
    pub send_timeout: Val<u64>,
    pub(crate) postpone_output: Val<u64>,
    /// Bytes a second; `None` and 0: no limit.
    pub limit_rate: Val<Option<Arc<Template>>>,
    pub(crate) limit_rate_after: Val<Option<Arc<Template>>>,
    /// The kernel sends files, where no filter looks at them.
    pub sendfile: Val<bool>,
    /// Bytes at a time; 0: as many as go.
    pub sendfile_max_chunk: Val<u64>,
    /// Who waits for the disk.
    pub aio: Val<Aio>,
    /// From so many bytes on a file is read past the kernel's cache; `u64::MAX`: none is.
    pub directio: Val<u64>,
    /// Bytes.
    pub directio_alignment: Val<u64>,
    /// Number of the buffers for reading files, and their size in bytes; neither is 0.
    pub output_buffers: Val<(u32, u64)>,
    pub(crate) tcp_nopush: Val<bool>,
    /// Small pieces do not wait for what follows.
    pub tcp_nodelay: Val<bool>,
    /// `None`: off.
    pub open_file_cache: Val<Option<OpenFileCache>>,
    pub(crate) disable_symlinks: Val<Option<Arc<DisableSymlinks>>>,
    /// Seconds until a file is looked at again.
    pub open_file_cache_valid: Val<u64>,
    /// Uses within `inactive_secs` from which on a file stays open.
    pub open_file_cache_min_uses: Val<u64>,
    /// Bytes a worker keeps of small files and of their compressed forms.
    pub open_file_memory: Val<u64>,
    /// What could not be opened is remembered, too.
    pub open_file_cache_errors: Val<bool>,
    /// For names in variables.
    pub resolver: Val<Option<Arc<weir_resolve::Resolver>>>,
    /// Milliseconds for a name.
    pub resolver_timeout: Val<u64>,
    /// `Vary: Accept-Encoding` with what may be compressed.
    pub gzip_vary: Val<bool>,
    pub(crate) early_hints: Val<Conditions>,
    /// All that are in force.
    pub error_log: Val<Arc<weir_core::logger::ErrorLog>>,
}

impl CoreLoc {
    /// The MIME type of an extension, in any letter case.
    pub fn type_of(&self, extension: &[u8]) -> Option<&[u8]> {
        if !extension.iter().any(u8::is_ascii_uppercase) {
            return self.types.get(extension).map(|t| &**t);
        }
        self.types.get(extension.to_ascii_lowercase().as_slice()).map(|t| &**t)
    }

    /// Of this level or the one it has inherited from; the first that names the status.
    pub fn error_page_for(&self, status: u16) -> Option<&ErrorPage> {
        self.error_pages.iter().find(|p| p.status == status)
    }
}

/// The root that nginx has when none is set.
fn default_root() -> Template {
    Template::constant(b"html")
}

/// A root without variables is below the prefix where it is relative.
pub(crate) fn full_root(root: Template, prefix: &Path) -> Template {
    match root.as_constant() {
        Some(text) if !paths::is_whole(text) => {
            Template::constant(paths::bytes(&paths::within(prefix, text)))
        }
        _ => root,
    }
}

/// Where one begins that has variables, if it is relative once they are known.
pub(crate) fn root_begins(root: &Template, prefix: &Path) -> Option<Arc<[u8]>> {
    let begins = paths::join(prefix, "");
    root.as_constant().is_none().then(|| paths::bytes(&begins).into())
}

fn default_temp_path() -> Arc<TempPath> {
    TempPath::new(PathBuf::from("client_body_temp"), [0; 3])
}

fn default_types() -> Arc<Types> {
    let rows: [(&str, &str); 3] =
        [("html", "text/html"), ("gif", "image/gif"), ("jpg", "image/jpeg")];
    Arc::new(rows.iter().map(|(e, t)| (e.as_bytes().into(), t.as_bytes().into())).collect())
}

impl CoreLoc {
    /// The root, or alias, onto the end of `path`.
    pub fn root_into(&self, r: &mut Request, path: &mut Vec<u8>) {
        let begin = path.len();
        r.eval_into(&self.root, path);
        if let Some(begins) = &self.root_begins {
            if !paths::is_whole(&path[begin..]) {
                path.splice(begin..begin, begins.iter().copied());
            }
        }
    }
}

impl ConfType for CoreLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &CoreLoc) -> ConfResult {
        if !self.root.is_set() {
            self.alias.merge(&parent.alias, || false);
            self.alias_is_whole = parent.alias_is_whole;
            self.root_begins.clone_from(&parent.root_begins);
            self.alias_name.clone_from(&parent.alias_name);
        }
        self.alias.merge(&Val::UNSET, || false);
        merge_values!(self, parent;
            root = Arc::new(default_root()),
            types = default_types(),
            default_type = b"text/plain".to_vec(),
            client_max_body_size = 1024 * 1024,
            client_body_buffer_size = 16384,
            client_body_timeout = 60_000,
            client_body_temp_path = default_temp_path(),
            client_body_in_file_only = BodyInFile::Off,
            client_body_in_single_buffer = false,
            satisfy = Satisfy::All,
            auth_delay = 0,
            internal = false,
            lingering_close = Lingering::On,
            lingering_time = 30_000,
            lingering_timeout = 5_000,
            reset_timedout_connection = false,
            absolute_redirect = true,
            server_name_in_redirect = false,
            port_in_redirect = true,
            msie_padding = true,
            msie_refresh = false,
            log_not_found = true,
            log_subrequest = false,
            subrequest_output_buffer_size = 4096,
            post_action = None,
            recursive_error_pages = false,
            server_tokens = ServerTokens::On,
            if_modified_since = IfModifiedSince::Exact,
            max_ranges = u64::MAX,
            chunked_transfer_encoding = true,
            etag = true,
            error_pages = Arc::new(Vec::new()),
        );
        self.merge_connection(parent);
        Ok(())
    }
}

/// The core's slot. An `if` or `limit_except` block has its location's handler unless it sets one.
pub(crate) const LOC_SLOT: SlotVtable = SlotVtable {
    merge: |own, outer, unnamed| {
        merged(own, outer, |own: &mut CoreLoc, outer: &CoreLoc| {
            if unnamed {
                own.handler = own.handler.or(outer.handler);
                own.auto_redirect |= outer.auto_redirect;
            }
            own.merge(outer)
        })
    },
    ..SlotVtable::of::<CoreLoc>()
};

impl CoreLoc {
    /// Sets at the `http` level what is otherwise made for each server that is not silent.
    pub fn complete(&mut self, prefix: &Path, error_log: &Arc<weir_core::logger::ErrorLog>) {
        self.error_log.merge(&Val::UNSET, || Arc::clone(error_log));
        self.root.merge(&Val::UNSET, || Arc::new(full_root(default_root(), prefix)));
        self.types.merge(&Val::UNSET, default_types);
        self.client_body_temp_path.merge(&Val::UNSET, default_temp_path);
        self.error_pages.merge(&Val::UNSET, Arc::default);
    }

    fn merge_connection(&mut self, parent: &CoreLoc) {
        merge_values!(self, parent;
            keepalive_time = 3_600_000,
            keepalive_timeout = 75_000,
            keepalive_min_timeout = 0,
            keepalive_header = None,
            keepalive_requests = 1000,
            keepalive_disable = 1,
            send_timeout = 60_000,
            postpone_output = 1460,
            limit_rate = None,
            limit_rate_after = None,
            sendfile = false,
            sendfile_max_chunk = 2 * 1024 * 1024,
            aio = Aio::Off,
            directio = u64::MAX,
            directio_alignment = 512,
            output_buffers = (2, 32 * 1024),
            tcp_nopush = false,
            tcp_nodelay = true,
            open_file_cache = None,
            disable_symlinks = None,
            open_file_cache_valid = 60,
            open_file_cache_min_uses = 1,
            open_file_memory = 64 << 20,
            open_file_cache_errors = false,
            resolver = None,
            resolver_timeout = 30_000,
            gzip_vary = false,
            early_hints = Arc::default(),
            error_log = Arc::new(weir_core::logger::ErrorLog::default()),
        );
    }
}
