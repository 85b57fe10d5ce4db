//! The rate limits of logins and registrations for all gateways that share a store, in addition to
//! the counts of each gateway (`throttle.rs`). The store gets digests only.

use std::net::IpAddr;
use std::time::Duration;

use super::Auth;
use super::throttle::{
    LOGIN_WINDOW, LOGINS, NETWORK_LOGINS, REGISTRATION_WINDOW, REGISTRATIONS, network,
};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::secret::Secret;
use rerouter_store::{AttemptLimit, Store};

impl Auth {
    pub async fn count_login(
        &self,
        store: &Store,
        email: &str,
        address: Option<IpAddr>,
    ) -> Result<()> {
        let network = place(address);
        let window = LOGIN_WINDOW;
        let pair = self.limit(format!("login {network} {email}"), LOGINS, window);
        let all = self.limit(format!("logins {network}"), NETWORK_LOGINS, window);
        count(store, vec![pair, all]).await
    }

    pub async fn count_registration(&self, store: &Store, address: Option<IpAddr>) -> Result<()> {
        let what = format!("registration {}", place(address));
        count(store, vec![self.limit(what, REGISTRATIONS, REGISTRATION_WINDOW)]).await
    }

    fn limit(&self, what: String, most: u32, lasting: Duration) -> AttemptLimit {
        let digest = self.digest(&Secret::new(what));
        let what = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        AttemptLimit { what, most, lasting }
    }
}

fn place(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "nowhere".to_owned(), |address| network(address).to_string())
}

async fn count(store: &Store, limits: Vec<AttemptLimit>) -> Result<()> {
    match store.count_attempt(limits).await? {
        None => Ok(()),
        Some(wait) => {
            let why = "Too many attempts; try again later.";
            Err(Error::new(Kind::RateLimited, why).retry_after(wait))
        }
    }
}
