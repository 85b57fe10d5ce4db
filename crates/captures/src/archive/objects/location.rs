//! Selects an object store by a URL. Its credentials are read from the same variables that the
//! store's own tools use.

use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use url::Url;

use super::SegmentObjects;
use super::client::{OBJECT_REQUEST, ObjectConnector};

/// Environment variables for `s3://`.
const S3: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ALLOW_HTTP",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_KMS_KEY_ID",
    "AWS_REQUEST_PAYER",
];
/// Environment variables for `gs://`.
const GOOGLE: &[&str] = &[
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_BASE_URL",
];
/// The variable that `az://` requires.
const AZURE_ACCOUNT: &str = "AZURE_STORAGE_ACCOUNT_NAME";
/// Environment variables for `az://`.
const AZURE: &[&str] = &[
    AZURE_ACCOUNT,
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_AUTHORITY_HOST",
    "AZURE_FEDERATED_TOKEN_FILE",
    "IDENTITY_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ALLOW_HTTP",
];

/// An object store, and the folder of segments in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLocation {
    scheme: StorageScheme,
    url: Url,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StorageScheme {
    Folder(PathBuf),
    S3,
    Google,
    Azure,
}

impl fmt::Display for ObjectLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl ObjectLocation {
    /// Parses a URL. The error tells what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let parts = url.to_ascii_lowercase().replace("%2e", ".");
        if parts.split(['/', '\\']).any(|part| part == "." || part == "..") {
            return Err("must hold no dotted parts");
        }
        let parsed = Url::parse(url).ok().filter(|_| url.contains("://"));
        let url = parsed.ok_or("must be a URL like `s3://bucket/folder`")?;
        let plain = url.username().is_empty() && url.password().is_none() && url.port().is_none();
        if !plain || url.query().is_some() || url.fragment().is_some() {
            return Err("may hold a bucket and a folder only");
        }
        let scheme = match url.scheme() {
            "file" => StorageScheme::Folder(
                url.to_file_path().map_err(|()| "must be `file:///` and an absolute path")?,
            ),
            "s3" => StorageScheme::S3,
            "gs" => StorageScheme::Google,
            "az" => StorageScheme::Azure,
            _ => return Err("must begin with `file://`, `s3://`, `gs://` or `az://`"),
        };
        let named = url.host_str().is_some_and(|bucket| !bucket.is_empty());
        match scheme {
            StorageScheme::Folder(_) => {}
            _ if !named => return Err("must name a bucket"),
            _ if ObjectPath::from_url_path(url.path()).is_err() => {
                return Err("must name a folder without empty or dotted parts");
            }
            _ => {}
        }
        Ok(ObjectLocation { scheme, url })
    }

    /// Opens the object store. `variable` looks up environment variables.
    pub fn open(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<SegmentObjects, String> {
        let set = |names: &'static [&'static str]| {
            let value = |name: &&'static str| Some((*name, variable(name)?));
            names.iter().filter_map(value).filter(|(_, value)| !value.is_empty())
        };
        let url = self.url.as_str();
        // The builders have the same methods, but share no trait.
        macro_rules! build {
            ($builder:ident, $names:expr) => {{
                let mut builder = $builder::new();
                for (name, value) in set($names) {
                    if let Ok(key) = name.to_ascii_lowercase().parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let builder = builder.with_http_connector(ObjectConnector::new());
                builder.with_url(url).with_retry(retry()).build().map(|store| Arc::new(store) as _)
            }};
        }
        let built: object_store::Result<Arc<dyn ObjectStore>> = match &self.scheme {
            StorageScheme::Folder(folder) => {
                make(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
                LocalFileSystem::new_with_prefix(folder).map(|store| Arc::new(store) as _)
            }
            StorageScheme::S3 => build!(AmazonS3Builder, S3),
            StorageScheme::Google => build!(GoogleCloudStorageBuilder, GOOGLE),
            StorageScheme::Azure => {
                if variable(AZURE_ACCOUNT).is_none_or(|account| account.is_empty()) {
                    return Err(format!("{AZURE_ACCOUNT} is not set"));
                }
                build!(MicrosoftAzureBuilder, AZURE)
            }
        };
        let prefix = match self.scheme {
            StorageScheme::Folder(_) => Ok(ObjectPath::default()),
            _ => ObjectPath::from_url_path(self.url.path()).map_err(|error| error.to_string()),
        };
        let store = built.map_err(|error| super::told(&error).to_string())?;
        SegmentObjects::new(store, prefix?).map_err(|error| error.to_string())
    }
}

/// Creates a folder that only this user can read.
fn make(folder: &std::path::Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Limits the retries within one call. The caller tries again later.
fn retry() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(200),
        max_backoff: Duration::from_secs(2),
        base: 2.,
    };
    RetryConfig { backoff, max_retries: 2, retry_timeout: OBJECT_REQUEST }
}
