//! Reroutes that may be repeated.

use super::*;
use crate::reroutes::REPEATS_SHARE_BYTES;
use crate::{KnownReroute, NamedReroute, RerouteAnswer};

fn capture(second: i64) -> RequestId {
    RequestId::new(at(second), &Random::seeded(4))
}

fn call(name: u8, claim: u8) -> NamedReroute {
    let (id, claim) = ([name; 32], [claim; 32]);
    NamedReroute { id, original: capture(1), payer: "usr_ann".into(), claim }
}

fn answer(sealed: Option<Vec<u8>>) -> RerouteAnswer {
    RerouteAnswer { replay: Some(capture(2)), sealed }
}

pub(crate) async fn one_reroute_of_a_name_runs_and_its_answer_is_kept(bed: &impl Bed) {
    let kept = answer(Some(vec![0, 159, 255]));
    {
        let store = bed.open().await;
        // The same call at once, from many.
        let claims = (0..8).map(|claim| store.claim_reroute(call(1, claim), at(1)));
        let claims = futures::future::join_all(claims).await;
        let mut known: Vec<_> = claims.into_iter().map(Result::unwrap).collect();
        let first = known.iter().position(|known| *known == KnownReroute::New).unwrap();
        known.remove(first);
        assert!(known.iter().all(|known| *known == KnownReroute::UnderWay), "{known:?}");
        let winner = u8::try_from(first).unwrap();
        // Only its own claim ends it.
        store.release_reroute(call(1, winner + 1)).await.unwrap();
        store.answer_reroute(call(1, winner + 1), answer(None), at(1)).await.unwrap();
        assert_eq!(store.claim_reroute(call(1, 9), at(1)).await.unwrap(), KnownReroute::UnderWay);
        store.answer_reroute(call(1, winner), kept.clone(), at(1)).await.unwrap();
        store.release_reroute(call(1, winner)).await.unwrap();
    }
    let store = bed.open().await;
    assert_eq!(
        store.claim_reroute(call(1, 9), at(1)).await.unwrap(),
        KnownReroute::Answered(kept),
        "also after another start"
    );
    let other = NamedReroute { original: capture(3), ..call(1, 9) };
    assert_eq!(store.claim_reroute(other, at(1)).await.unwrap(), KnownReroute::OfAnother);
    // What failed may be tried again; what is too large is known to be answered.
    for _ in 0..2 {
        assert_eq!(store.claim_reroute(call(2, 9), at(1)).await.unwrap(), KnownReroute::New);
        store.release_reroute(call(2, 9)).await.unwrap();
    }
    store.claim_reroute(call(2, 9), at(1)).await.unwrap();
    store.answer_reroute(call(2, 9), answer(None), at(1)).await.unwrap();
    assert_eq!(
        store.claim_reroute(call(2, 9), at(1)).await.unwrap(),
        KnownReroute::Answered(answer(None))
    );
}

pub(crate) async fn a_payer_has_a_share_of_reroutes(bed: &impl Bed) {
    let store = bed.open().await;
    let large = vec![7; REPEATS_SHARE_BYTES];
    store.claim_reroute(call(1, 1), at(1)).await.unwrap();
    store.answer_reroute(call(1, 1), answer(Some(large)), at(1)).await.unwrap();
    assert_eq!(store.claim_reroute(call(2, 1), at(1)).await.unwrap(), KnownReroute::Full);
    // What is known is told, and others have their own share.
    let told = store.claim_reroute(call(1, 2), at(1)).await.unwrap();
    assert!(matches!(told, KnownReroute::Answered(_)));
    let other = NamedReroute { payer: "usr_bob".into(), ..call(3, 1) };
    assert_eq!(store.claim_reroute(other, at(1)).await.unwrap(), KnownReroute::New);
}
