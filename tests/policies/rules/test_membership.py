import pytest

from broker.core.policy.policy import Answer, Facts, Source
from policies.rules.always import Membership, Roster
from tests.contracts.rule_contract import NOW, action, job

NLP = Roster("nlp", ("ann", "b*"), Source("nlp.yaml", 3))
NLP_AS_FINANCE_SEES_IT = Roster("nlp", ("ann",), Source("finance.yaml", 8))
VISION = Roster("vision", ("eve",), Source("vision.yaml", 2))


@pytest.mark.parametrize(
    ("rosters", "team", "user", "code"),
    [
        ((), "nlp", "anybody", "no_claim"),
        ((NLP,), None, "anybody", "no_claim"),
        ((NLP,), "nlp", "ann", "member"),
        ((NLP,), "nlp", "bob", "member"),
        ((NLP,), "nlp", "mallory", "not_a_member"),
        ((NLP,), "nlp", "Ann", "not_a_member"),
        ((NLP,), "vision", "ann", "unknown_team"),
        ((NLP, VISION), "vision", "ann", "not_a_member"),
        # Two files list the team: both must list the user.
        ((NLP, NLP_AS_FINANCE_SEES_IT), "nlp", "ann", "member"),
        ((NLP, NLP_AS_FINANCE_SEES_IT), "nlp", "bob", "not_a_member"),
    ],
)
def test_who_may_claim_a_team(rosters: tuple[Roster, ...], team: str | None, user: str, code: str) -> None:
    verdict = Membership(rosters).judge(action(job=job(team=team), user=user), Facts(NOW))

    assert verdict.code == code
    assert (verdict.answer is Answer.ALLOW) == (code in ("no_claim", "member"))


def test_the_message_says_who_where_and_what_was_meant() -> None:
    rule = Membership((VISION, NLP, NLP_AS_FINANCE_SEES_IT))

    stranger = rule.judge(action(user="bob"), Facts(NOW))
    typo = rule.judge(action(job=job(team="visoin")), Facts(NOW))

    assert stranger.message == "bob is not a member of team nlp; its file has to name bob"
    assert str(stranger.source) == "finance.yaml:8", "the file that does not list bob, and no other place"
    assert typo.message == "no policy lists a team 'visoin'; did you mean 'vision'?"
    assert str(typo.source) == "vision.yaml:2", "the team that was meant"
    assert str(rule.judge(action(job=job(team="x-ray")), Facts(NOW)).source) == "vision.yaml:2", "the first list"
    assert str(rule.judge(action(user="ann"), Facts(NOW)).source) == "nlp.yaml:3"
    assert str(rule.judge(action(job=job(team=None)), Facts(NOW)).source) == "built-in"
