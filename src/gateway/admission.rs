//! Who is let in to what. Nothing that answers is reached without an [`Admission`], and there is one way to get that: a principal
//! that may call the route. Nobody in particular may call the few that are open by contract.

use crate::api::{PathParams, Policy, Responder, Route};
use crate::auth::{self, AgentCredential, Principal};
use crate::error::{Error, Kind, Result};
use crate::interface::Surface;

/// A request that is let in.
pub(super) struct Admission {
    route: &'static Route,
    params: PathParams,
    principal: Principal,
}

impl Admission {
    /// Lets a principal in to a route, or says why not.
    pub(super) fn of(
        route: &'static Route,
        params: PathParams,
        principal: Principal,
    ) -> Result<Self> {
        may_call(route, &principal)?;
        Ok(Admission { route, params, principal })
    }

    /// Where to.
    pub(super) fn route(&self) -> &'static Route {
        self.route
    }

    /// What the path says beside that.
    pub(super) fn params(&self) -> &PathParams {
        &self.params
    }

    /// Who.
    pub(super) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Whether a credential says who it is.
    pub(super) fn is_known(&self) -> bool {
        !matches!(
            self.principal,
            Principal::Anonymous | Principal::AgentTenant { via: AgentCredential::Open }
        )
    }

    /// Whether it is answered where there is no place for its connection: what tells that the gateway is well, and what somebody
    /// known asks that no provider is asked for.
    pub(super) fn without_a_place(&self, bodiless: bool) -> bool {
        match self.route.responder {
            Responder::Inference(_) | Responder::Reroute => false,
            Responder::Direct(..) | Responder::Progress(..) => {
                self.is_known() || (bodiless && matches!(self.route.path, "/health" | "/version"))
            }
        }
    }

    /// The same principal after another look at its credential: it may do less by now.
    pub(super) fn again(&self, fresh: Principal) -> Result<Principal> {
        may_call(self.route, &fresh)?;
        Ok(fresh)
    }
}

fn may_call(route: &Route, principal: &Principal) -> Result<()> {
    match route.policy {
        policy if policy.is_open() => Ok(()),
        _ if matches!(principal, Principal::Anonymous) => {
            Err(auth::unauthorized(Surface::of(route.path)))
        }
        Policy::Scope(scope) if !principal.has_scope(scope) => {
            Err(Error::new(Kind::InsufficientScope, format!("This key lacks the scope `{scope}`.")))
        }
        Policy::Admin if !principal.is_admin() => {
            Err(Error::new(Kind::Forbidden, "This is for admins."))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ROUTES;

    #[test]
    fn nobody_is_let_in_but_where_the_contract_is_open() {
        let mut open = Vec::new();
        for route in ROUTES {
            match Admission::of(route, PathParams::default(), Principal::Anonymous) {
                Ok(_) => open.push(format!("{} {}", route.method, route.path)),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Unauthorized, "{} {}", route.method, route.path)
                }
            }
        }
        assert_eq!(
            open,
            [
                "GET /health",
                "GET /version",
                "GET /openapi.json",
                "POST /v1/auth/register",
                "POST /v1/auth/login"
            ]
        );
    }
}
