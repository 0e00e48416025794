use super::*;
use crate::backend::Capabilities;

fn said(verdict: Option<Verdict>) -> String {
    verdict.map_or_else(|| "the server's".to_owned(), |verdict| verdict.to_string())
}

#[test]
fn each_is_parsed_from_what_it_displays_as() {
    let capabilities = Capabilities::default().permits(5);
    for guarantee in capabilities.guarantees() {
        assert_eq!(guarantee.to_string().parse::<Guarantee>().unwrap(), guarantee);
    }
    let long = Guarantee::Ttl(Duration::from_millis(90_500));
    assert_eq!(long.to_string(), "ttl:1m30s500ms");
    assert_eq!(long.to_string().parse::<Guarantee>().unwrap(), long);
}

#[test]
fn what_is_no_guarantee_is_refused_with_what_there_is() {
    for (text, says) in [
        ("fifoo", "there are server-crash, failover, "),
        ("", "permits:N"),
        ("permits", "write permits:N"),
        ("permits:many", "write permits:5"),
        ("ttl", "write ttl:DURATION"),
        ("ttl:3", "write ttl:1s"),
        ("ttl<=1s", "ttl:DURATION"),
        ("fifo:2", "write fifo"),
    ] {
        let error = text.parse::<Guarantee>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}

#[test]
fn a_backend_that_declares_nothing_offers_nothing_but_its_ttls() {
    let capabilities = Capabilities::default();
    let kept = capabilities
        .guarantees()
        .map(|guarantee| (guarantee.id(), capabilities.verdict(guarantee)));
    let of_server = kept.iter().filter(|(_, verdict)| verdict.is_none()).count();
    assert_eq!(of_server, 6, "{kept:?}");
    let yes: Vec<_> = kept
        .iter()
        .filter(|(_, verdict)| *verdict == Some(Verdict::Yes))
        .collect();
    assert!(matches!(yes[..], [("ttl", _)]), "{yes:?}");
}

#[test]
fn what_a_backend_declares_is_kept() {
    let all = Capabilities::default()
        .fifo()
        .durable_tokens()
        .shared()
        .upgradable()
        .downgrade()
        .permits(5)
        .fixed_lease()
        .extend()
        .minimum_hold();
    for guarantee in all.guarantees() {
        let verdict = all.verdict(guarantee);
        assert!(verdict.as_ref().is_none_or(Verdict::is_yes), "{guarantee}: {verdict:?}");
    }
    assert_eq!(
        said(all.verdict(Guarantee::Permits(6))),
        "no: a semaphore has at most 5 permits; choose a lower limit"
    );
    let quorum = Capabilities::default().permits(1);
    assert!(said(quorum.verdict(Guarantee::Permits(2))).contains("no semaphores"));
}

#[test]
fn a_ttl_is_kept_if_it_is_in_the_backends_range() {
    let capabilities = Capabilities::default().ttl_between(Duration::from_secs(1), Duration::from_secs(60));
    let ttl = |seconds| said(capabilities.verdict(Guarantee::Ttl(Duration::from_secs(seconds))));
    assert_eq!(
        ttl(0),
        "no: the shortest TTL is 1s; choose a longer TTL, or another server"
    );
    assert_eq!((ttl(1), ttl(60)), ("yes".to_owned(), "yes".to_owned()));
    assert!(ttl(61).contains("the longest TTL is 1m"), "{}", ttl(61));
}

#[test]
fn of_two_servers_the_worse_counts() {
    let (no, unknown) = (Verdict::no("a", "b"), Verdict::unknown("c", "d"));
    assert_eq!(Verdict::Yes.and(Verdict::Yes), Verdict::Yes);
    for (one, other, worse) in [
        (Verdict::Yes, &unknown, &unknown),
        (unknown.clone(), &Verdict::Yes, &unknown),
        (unknown.clone(), &no, &no),
        (no.clone(), &unknown, &no),
        (no.clone(), &Verdict::no("e", "f"), &no),
    ] {
        assert_eq!(one.and(other.clone()), *worse);
    }
}
