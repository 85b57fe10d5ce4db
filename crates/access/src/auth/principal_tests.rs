use super::*;
use crate::auth::tests::World;
use rerouter_base::secret::Secret;
use rerouter_store::Change;

#[test]
fn a_router_key_reaches_its_line_and_others_all_of_their_owner() {
    let mut world = World::new(None);
    let ann = world.user.id.clone();
    let mut made: Vec<KeyRow> = Vec::new();
    // The first key is the parent of the second, the third and the sixth, the second of the fourth.
    // The fifth has no parent, and the sixth has another owner.
    for parent in [None, Some(0), Some(0), Some(1), None, Some(0)] {
        let mut row = world.row(Interface::Router, &Secret::new(format!("{}", made.len())));
        row.parent = parent.map(|at: usize| made[at].id.clone());
        if made.len() == 5 {
            row.owner = UserId::known("usr_bob");
        }
        world.commit(Change::Key(row.clone().into()));
        made.push(row);
    }
    let with = |row: &KeyRow, scopes: &[&str]| Principal::User {
        user: Arc::new(world.user.clone()),
        via: Credential::Key(Arc::new(KeyRow {
            scopes: Arc::new(scopes.iter().map(|scope| (*scope).to_owned()).collect()),
            ..row.clone()
        })),
    };
    let covered = |who: &Principal| {
        let reach = world.auth.reach(who);
        let one = |row: &KeyRow| reach.covers(&row.owner, Some(&row.id));
        (made.iter().map(one).collect::<Vec<_>>(), reach.covers(&ann, None))
    };
    let (yes, no) = (true, false);
    let mut rights = vec!["replay", "keys"];
    assert_eq!(covered(&with(&made[0], &rights)), (vec![yes, yes, yes, yes, no, no], no));
    assert_eq!(covered(&with(&made[1], &rights)), (vec![no, yes, no, yes, no, no], no));
    assert_eq!(covered(&with(&made[4], &rights)), (vec![no, no, no, no, yes, no], no));
    rights.push("replay:all");
    assert_eq!(covered(&with(&made[4], &rights)), (vec![yes, yes, yes, yes, yes, no], yes));
    // The scope `admin` is void while its user is no admin.
    assert_eq!(covered(&with(&made[4], &["admin"])).0, [no, no, no, no, yes, no]);
    let pin = world.row(Interface::Pin, &Secret::new("pin"));
    assert_eq!(covered(&with(&pin, &["user"])), (vec![yes, yes, yes, yes, yes, no], yes));
    let session = Credential::Session(SessionId::known("sess_1"));
    let login = Principal::User { user: Arc::new(world.user.clone()), via: session };
    assert_eq!(covered(&login), (vec![yes, yes, yes, yes, yes, no], yes));
    assert_eq!(covered(&Principal::Admin), (vec![yes; 6], yes));
    let open = Principal::AgentTenant { via: AgentCredential::Open };
    for nobody in [open, Principal::Anonymous] {
        assert_eq!(covered(&nobody), (vec![no; 6], no));
    }
}

#[test]
fn a_missing_scope_is_told_with_the_way_to_it() {
    let world = World::new(None);
    let told = |interface: Interface, scopes: &[&str], wanted: &str| {
        let row = world.row(interface, &Secret::new("x"));
        let scopes = Arc::new(scopes.iter().map(|scope| (*scope).to_owned()).collect());
        let via = Credential::Key(Arc::new(KeyRow { scopes, ..row }));
        let who = Principal::User { user: Arc::new(world.user.clone()), via };
        who.require(wanted).map_err(|error| {
            assert_eq!(error.kind(), Kind::InsufficientScope);
            error.detail().to_owned()
        })
    };
    let refused = |text: &str| Err(text.to_owned());
    assert_eq!(
        told(Interface::Router, &["inference"], "replay"),
        refused(
            "This key lacks the scope `replay`. With a session or ADMIN_API_KEY, make a key with \
             it: `rerouter keys create NAME --scope inference --scope replay`."
        )
    );
    assert_eq!(
        told(Interface::Router, &["replay:all"], "config"),
        refused(
            "This key lacks the scope `config`. An admin makes a key with it: `rerouter keys \
             create NAME --scope replay:all --scope config`."
        )
    );
    // The suggested command keeps the scopes that the key has, and only an admin can grant these.
    assert_eq!(
        told(Interface::Router, &["replay:all"], "inference"),
        refused(
            "This key lacks the scope `inference`. An admin makes a key with it: `rerouter keys \
             create NAME --scope replay:all --scope inference`."
        )
    );
    assert_eq!(
        told(Interface::Agent, &["agents"], "keys"),
        refused(
            "This key lacks the scope `keys`. With AGENT_CLOUD_API_KEY, make a key with it: \
             `rerouter keys create NAME --interface agent --scope agents --scope keys`."
        )
    );
    assert_eq!(told(Interface::Router, &["replay:all"], "replay"), Ok(()));
    assert!(told(Interface::Router, &["replay"], "replay:all").is_err());
    let via = Credential::Session(SessionId::known("sess_1"));
    let login = Principal::User { user: Arc::new(world.user.clone()), via };
    assert_eq!(
        login.require("config").unwrap_err().detail(),
        "This is for admins, and for keys with the scope `config`."
    );
    assert!(login.require("replay").is_ok());
}
