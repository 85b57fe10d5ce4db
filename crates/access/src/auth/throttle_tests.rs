use super::*;
use rerouter_base::clock::Clock;
use rerouter_base::clock::fixtures::at;

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn ten_logins_a_quarter_of_an_hour_by_email_and_network() {
    let (throttle, clock) = (Throttle::default(), Clock::manual(at(0)));
    for last in 0..10 {
        throttle.login("a@b.c", address(&format!("192.0.2.{last}")), clock.now()).unwrap();
        clock.advance(Duration::from_secs(1));
    }
    let error = throttle.login("a@b.c", address("192.0.2.99"), clock.now()).unwrap_err();
    assert_eq!((error.kind(), error.retry_after_s()), (Kind::RateLimited, Some(15 * 60 - 10)));
    throttle.login("a@b.c", address("192.0.3.1"), clock.now()).unwrap();
    throttle.login("d@e.f", address("192.0.2.1"), clock.now()).unwrap();
    clock.advance(Duration::from_secs(15 * 60 - 10));
    throttle.login("a@b.c", address("192.0.2.1"), clock.now()).unwrap();
    throttle.login("a@b.c", address("192.0.2.1"), clock.now()).unwrap_err();
}

#[test]
fn twenty_registrations_an_hour_from_a_network() {
    let (throttle, clock) = (Throttle::default(), Clock::manual(at(0)));
    for last in 0..20 {
        throttle.register(address(&format!("2001:db8:0:ff{last:02}::1")), clock.now()).unwrap();
    }
    throttle.register(address("2001:db8:0:ff00::2"), clock.now()).unwrap_err();
    throttle.register(address("2001:db8:0:fe00::2"), clock.now()).unwrap();
    clock.advance(REGISTRATION_WINDOW);
    throttle.register(address("2001:db8:0:ff00::2"), clock.now()).unwrap();
}

#[test]
fn a_flood_of_made_up_pairs_frees_nobody() {
    let (throttle, clock) = (Throttle::default(), Clock::manual(at(0)));
    let here = address("192.0.2.1");
    for _ in 0..LOGINS {
        throttle.login("victim@example.com", here, clock.now()).unwrap();
    }
    throttle.login("victim@example.com", here, clock.now()).unwrap_err();
    let mut networks = 0_u32;
    for made_up in 0..=LOGIN_PAIRS {
        if made_up % 50 == 0 {
            networks += 1;
        }
        let from = Some(IpAddr::V4(Ipv4Addr::from_bits((10 << 24) + (networks << 8))));
        throttle.login(&format!("{made_up}@example.com"), from, clock.now()).unwrap();
        clock.advance(Duration::from_micros(1));
    }
    throttle.login("victim@example.com", here, clock.now()).unwrap_err();
}

#[test]
fn a_network_has_a_hundred_logins_and_what_a_pair_is_refused_is_not_counted() {
    let (throttle, clock) = (Throttle::default(), Clock::manual(at(0)));
    let here = address("192.0.2.1");
    for _ in 0..1_000 {
        // Ten of these logins are accepted.
        let _refused = throttle.login("one@example.com", here, clock.now());
    }
    for other in 0..NETWORK_LOGINS - LOGINS {
        throttle.login(&format!("{other}@example.com"), here, clock.now()).unwrap();
    }
    let error = throttle.login("another@example.com", here, clock.now()).unwrap_err();
    assert_eq!((error.kind(), error.retry_after_s()), (Kind::RateLimited, Some(15 * 60)));
    throttle.login("another@example.com", address("192.0.3.1"), clock.now()).unwrap();
    clock.advance(LOGIN_WINDOW);
    throttle.login("another@example.com", here, clock.now()).unwrap();
}

#[test]
fn those_leave_first_whose_time_is_over() {
    let window: AttemptWindow<u32> = AttemptWindow::new(3, Duration::from_secs(60), 2);
    let at = |second| Timestamp::from_second(second).unwrap();
    for second in 0..3 {
        window.count(&1, at(second)).unwrap();
    }
    window.count(&2, at(50)).unwrap();
    // The window is full and no key's time is over, so the key with the fewest events is removed.
    window.count(&3, at(55)).unwrap();
    window.count(&1, at(56)).unwrap_err();
    window.count(&3, at(57)).unwrap();
    // Now the time of the first key is over, so it is removed although it has the most events.
    window.count(&4, at(63)).unwrap();
    window.count(&3, at(64)).unwrap();
    window.count(&3, at(65)).unwrap_err();
}

#[test]
fn memory_is_bounded_and_a_mapped_address_is_its_own() {
    let window = AttemptWindow::new(1, Duration::from_secs(60), 3);
    for key in 0..10 {
        window.count(&key, Timestamp::UNIX_EPOCH).unwrap();
    }
    let entries = window.entries.lock().unwrap();
    assert_eq!((entries.log.len(), entries.by_time.len(), entries.by_count.len()), (3, 3, 3));
    assert_eq!(
        network("::ffff:192.0.2.7".parse().unwrap()),
        "192.0.2.0".parse::<IpAddr>().unwrap()
    );
}
