//! PostgreSQL for tests: private clusters from the packages of the system, on loopback, without
//! fsync. A cluster ends with the process that started it, however that ends. Unit tests use this
//! file too.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::NoTls;

/// Makes a cluster, or the standby of one, starts it, says so, and stops it when its standard input
/// ends, which it does when the process of the test is gone.
const SCRIPT: &str = r#"
set -eu
bin=$1 port=$2 primary=$3
shift 3
dir=$(mktemp -d "${TMPDIR:-/tmp}/rerouter-postgres-XXXXXX")
trap 'rm -rf "$dir"' EXIT
if [ "$primary" ]; then
    make="pg_basebackup -h 127.0.0.1 -p $primary -R -c fast --no-sync"
else
    make="initdb --auth=trust --no-sync -E UTF8 --locale=C"
fi
"$bin/"$make -D "$dir/data" -U postgres >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
"$bin/postgres" -D "$dir/data" -c listen_addresses=127.0.0.1 -c port="$port" \
    -c unix_socket_directories="$dir" -c fsync=off -c shared_buffers=32MB \
    -c max_connections=300 "$@" >>"$dir/log" 2>&1 &
server=$!
until "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; do
    kill -0 "$server" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
    sleep 0.05
done
echo "$dir"
cat >/dev/null
kill -QUIT "$server" 2>/dev/null || true
wait "$server" || true
"#;

/// A running cluster; it ends with the value.
pub struct Cluster {
    child: Child,
    port: u16,
    dir: PathBuf,
}

impl Cluster {
    /// The cluster that the tests of this process share, each with a database of its own.
    pub fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Cluster::start(&[]))
    }

    /// Starts a cluster of its own, with more settings as `name=value`.
    pub fn start(settings: &[&str]) -> Cluster {
        Cluster::start_as("", settings)
    }

    /// Starts a standby: a copy of this cluster that follows it.
    pub fn standby(&self) -> Cluster {
        Cluster::start_as(&self.port.to_string(), &[])
    }

    fn start_as(primary: &str, settings: &[&str]) -> Cluster {
        // Another process may take the port in between.
        (0..5).find_map(|_| Cluster::try_start(primary, settings)).expect("PostgreSQL starts")
    }

    fn try_start(primary: &str, settings: &[&str]) -> Option<Cluster> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = settings.iter().flat_map(|setting| ["-c", setting]);
        let mut child = as_its_user("sh")
            .args(["-c", SCRIPT, "sh", programs().to_str().unwrap(), &port.to_string(), primary])
            .args(settings)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut dir = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut dir).unwrap();
        if dir.is_empty() {
            child.wait().unwrap();
            return None;
        }
        Some(Cluster { child, port, dir: dir.trim().into() })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the cluster: its `data`, its `log`, its socket.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The URL of a new database. It has a password, which this server does not ask for, and which
    /// nobody may ever see.
    pub async fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        // Without a template that a connection of another test may use.
        let create = format!("CREATE DATABASE {name} TEMPLATE template0");
        self.run("postgres", &create).await;
        self.url(&name)
    }

    /// The URL of a database by its name.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres:password-canary@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs statements in a database. Returns the rows of the last one, columns joined by `|`.
    pub async fn run(&self, database: &str, statements: &str) -> Vec<String> {
        run(&self.url(database), statements).await
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

/// Runs statements in the database of a URL, as [`Cluster::run`].
pub async fn run(url: &str, statements: &str) -> Vec<String> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    let answer = client.simple_query(statements).await.unwrap();
    drop(client);
    driver.await.unwrap().unwrap();
    let mut rows = Vec::new();
    for message in answer {
        match message {
            tokio_postgres::SimpleQueryMessage::RowDescription(_) => rows.clear(),
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                let columns = (0..row.len()).map(|at| row.get(at).unwrap_or("NULL"));
                rows.push(columns.collect::<Vec<_>>().join("|"));
            }
            _ => {}
        }
    }
    rows
}

/// The directory of the newest programs of PostgreSQL.
pub fn programs() -> PathBuf {
    let version = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()).unwrap_or(0)
    };
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let debian = debian.map(|entry| entry.unwrap().path()).max_by_key(version);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = debian.map(|version| version.join("bin")).into_iter();
    all.chain(std::env::split_paths(&path))
        .find(|dir| dir.join("initdb").is_file())
        .expect("PostgreSQL is not installed: on Debian `apt-get install postgresql`")
}

/// A program of PostgreSQL as the user who may run it, which is not root.
pub fn as_its_user(program: &str) -> Command {
    let id = Command::new("id").arg("-u").output().unwrap().stdout;
    if id.trim_ascii() != b"0" {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--", program]);
    command
}
