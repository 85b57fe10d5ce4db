//! Object stores as processes on loopback, each with an empty bucket. They end with the value.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{free_port, until};

/// Whose protocol and credentials it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectVendor {
    Amazon,
    Google,
    Azure,
}

/// The account that Azurite has without being told.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTO\
                           tr/KBHBeksoGMGw==";
/// Allows everything in that account until 2099.
const ACCOUNT_TOKEN: &str = "sv=2021-08-06&ss=b&srt=sco&sp=rwdlc&se=2099-01-01&spr=https,http&\
                             sig=2zwCLAbSVQZd5kaewA3aLIe%2BhLst%2BRT3QId4Gw%2Boa3Y%3D";

impl ObjectVendor {
    /// Those that are tried: Azure's only where `REROUTER_AZURITE` is the path of `azurite-blob`.
    pub fn tried() -> Vec<ObjectVendor> {
        let azure = azurite().map(|_| ObjectVendor::Azure);
        [ObjectVendor::Amazon, ObjectVendor::Google].into_iter().chain(azure).collect()
    }
}

fn azurite() -> Option<PathBuf> {
    std::env::var_os("REROUTER_AZURITE").map(PathBuf::from)
}

/// A running object store.
pub struct ObjectServer {
    vendor: ObjectVendor,
    child: Child,
    port: u16,
    dir: TempDir,
}

impl ObjectServer {
    /// With an empty bucket.
    pub async fn start(vendor: ObjectVendor) -> ObjectServer {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let child = launch(vendor, port, dir.path(), ACCOUNT_KEY);
        let server = ObjectServer { vendor, child, port, dir };
        until("the object store", async || {
            let created = ureq::put(server.bucket("restype=container")).send_empty();
            created.ok().map(|_| ())
        })
        .await;
        server
    }

    /// Where gateways keep segments.
    pub fn location(&self) -> &'static str {
        match self.vendor {
            ObjectVendor::Amazon => "s3://bucket/captures/eu",
            ObjectVendor::Google => "gs://bucket/captures/eu",
            ObjectVendor::Azure => "az://bucket/captures/eu",
        }
    }

    /// The variables of its credentials.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let (url, account) = (self.url(), self.account().display().to_string());
        match self.vendor {
            ObjectVendor::Amazon => vec![
                ("AWS_ACCESS_KEY_ID", "id".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "secret-canary".to_owned()),
                ("AWS_ENDPOINT_URL", url),
                ("AWS_ALLOW_HTTP", "true".to_owned()),
            ],
            ObjectVendor::Google => {
                vec![("GOOGLE_APPLICATION_CREDENTIALS", account), ("GOOGLE_BASE_URL", url)]
            }
            ObjectVendor::Azure => vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
                ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY.to_owned()),
                ("AZURE_STORAGE_ENDPOINT", url),
                ("AZURE_ALLOW_HTTP", "true".to_owned()),
            ],
        }
    }

    /// A part of the credentials that nobody may see.
    pub fn secret(&self) -> String {
        match self.vendor {
            ObjectVendor::Amazon => "secret-canary".to_owned(),
            ObjectVendor::Google => {
                std::fs::read_to_string(self.account()).unwrap()[100..120].to_owned()
            }
            ObjectVendor::Azure => ACCOUNT_KEY[..20].to_owned(),
        }
    }

    /// From now on it accepts no credentials, or those from before.
    pub async fn refuse_all(&mut self, refuse: bool) {
        let post = |path: &str, body: &str| {
            ureq::post(format!("{}{path}", self.url())).send(body).unwrap();
        };
        match self.vendor {
            ObjectVendor::Amazon => post("/moto-api/reset-auth", if refuse { "0" } else { "inf" }),
            ObjectVendor::Google => post("/refuse", &refuse.to_string()),
            ObjectVendor::Azure => {
                self.stop();
                let key = if refuse { "b3RoZXI=" } else { ACCOUNT_KEY };
                self.child = launch(self.vendor, self.port, self.dir.path(), key);
                until("the object store", async || {
                    match ureq::get(self.bucket("restype=container&comp=list")).call() {
                        Ok(_) if !refuse => Some(()),
                        Err(ureq::Error::StatusCode(403)) if refuse => Some(()),
                        _ => None,
                    }
                })
                .await;
            }
        }
    }

    /// The listing of the bucket, as XML.
    pub fn objects(&self) -> String {
        let answer = ureq::get(self.bucket("restype=container&comp=list&list-type=2")).call();
        answer.unwrap().body_mut().read_to_string().unwrap()
    }

    /// The file with the key of Google's service account.
    fn account(&self) -> PathBuf {
        self.dir.path().join("account.json")
    }

    fn url(&self) -> String {
        let account = if self.vendor == ObjectVendor::Azure { ACCOUNT } else { "" };
        format!("http://127.0.0.1:{}/{account}", self.port).trim_end_matches('/').to_owned()
    }

    /// The bucket, with what Azure needs in a query.
    fn bucket(&self, query: &str) -> String {
        format!("{}/bucket?{query}&{ACCOUNT_TOKEN}", self.url())
    }

    /// Ends it once what it has is on its disk.
    fn stop(&mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
        self.child.wait().unwrap();
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Starts the process, with its files in `dir`.
fn launch(vendor: ObjectVendor, port: u16, dir: &Path, key: &str) -> Child {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = || Command::new(root.join(".test/venv/bin/python"));
    let port = port.to_string();
    let mut command = match vendor {
        ObjectVendor::Amazon => {
            let mut command = python();
            command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port]);
            command
        }
        ObjectVendor::Google => {
            let mut command = python();
            command.arg(root.join("tests/tools/google_storage.py")).args([&port, "account.json"]);
            command
        }
        ObjectVendor::Azure => {
            let mut command = Command::new(azurite().unwrap());
            command
                .args(["--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", &port])
                .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{key}"));
            command
        }
    };
    command.current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
