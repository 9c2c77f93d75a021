"""The steps of `gpubroker setup`, and what is printed and asked at each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import typer

from broker.app import clouds
from broker.app.doctor.setup import (
    POLICY_FILE,
    TRIAL_COST,
    access_findings,
    apply_first_policy,
    bucket_maker,
    cheapest_offer,
    dry_run_finding,
    engine_finding,
    first_policy,
    probe_bucket,
    save_runs,
    trial_job,
)
from broker.app.jobs.details import details
from broker.app.jobs.plan_documents import plan
from broker.app.market import polling
from broker.app.providers import DoctorFinding, Health
from broker.cli import filters
from broker.cli.jobs.submit import SubmitManner, follow_to_end, plan_and_submit
from broker.cli.prices.poll import poll_progress
from broker.cli.service.doctor import finding_table
from broker.cli.terminal import Terminal, defer_ctrl_c
from broker.core.errors import BrokerError

if TYPE_CHECKING:
    from broker.app.wiring import Broker


from broker.cli.service.setup_options import SetupOptions

_DEFAULT_BUDGET = "$20"


@dataclass
class SetupWalk:
    """One walk: each step yields its findings, and does what was asked for."""

    terminal: Terminal
    cloud: str
    given: SetupOptions
    findings: list[DoctorFinding] = field(default_factory=list)

    @property
    def broker(self) -> Broker:
        return self.terminal.broker(look_after=not self.given.dry_run)

    @property
    def asks(self) -> bool:
        return self.terminal.asks and not (self.given.yes or self.given.dry_run)

    @property
    def _cloud(self) -> clouds.Cloud:
        return clouds.CLOUDS[self.cloud]

    def add(self, findings: Iterable[DoctorFinding]) -> None:
        """Keep and print the findings, each as it comes. An error of a step is one."""

        def until_error() -> Iterator[DoctorFinding]:
            try:
                yield from findings
            except BrokerError as error:
                yield DoctorFinding("step", Health.PROBLEM, str(error), error.hint)

        for finding in until_error():
            self.findings.append(finding)
            if not self.terminal.as_json:
                self.terminal.show(finding_table([finding]))

    def check(self) -> Iterator[DoctorFinding]:
        yield from (installs := list(clouds.install_findings(self.cloud)))
        logins = list(clouds.login_findings(self.broker, self.cloud))
        yield from logins
        if any(finding.health != "ok" for finding in (*installs, *logins)):
            return
        access = access_findings(self.broker, self.cloud, dry_run=self.given.dry_run)
        yield from self.terminal.busy("trying the login and its rights", list, access)
        asking = "asking the engine, or starting it"
        yield self.terminal.busy(asking, engine_finding, self.broker, self.cloud, dry_run=self.given.dry_run)

    def bucket(self) -> Iterator[DoctorFinding]:
        findings = list(clouds.bucket_findings(self.broker, self.cloud))
        name = self.given.create_bucket
        if not findings:
            return
        lacks = findings[0].health != "ok"
        if lacks and name is None and self.asks:
            question = "Name of a new private bucket for checkpoints (empty: none)"
            name = typer.prompt(question, default="", show_default=False, err=True) or None
        if name is not None:
            make_bucket = bucket_maker(self.broker, self.cloud, name)
            if self.given.dry_run:
                yield dry_run_finding(
                    "bucket", f"would make the bucket {name}: private, encrypted, in the login's region"
                )
                return
            with defer_ctrl_c() as interrupted:
                bucket = self.terminal.busy("making the bucket", make_bucket)
                done = f"made {bucket.url} in {bucket.location or 'its account'} (undo: {bucket.undo})"
                yield DoctorFinding("bucket", Health.OK, done if bucket.created else f"{bucket.url} exists, unchanged")
                if self.broker.settings.runs is None:
                    file = save_runs(self.broker, bucket)
                    self.terminal.reload()
                    yield DoctorFinding("settings", Health.OK, f"wrote runs = {bucket.url} (undo: that line of {file})")
            if interrupted():
                raise KeyboardInterrupt
            findings = list(clouds.bucket_findings(self.broker, self.cloud))
        elif lacks and self._cloud.scheme != "az":
            findings[0] = replace(
                findings[0], fix=f"gpubroker setup {self.cloud} --create-bucket NAME, or {findings[0].fix}"
            )
        yield from findings
        if findings[0].health == "ok":
            if self.given.dry_run:
                yield dry_run_finding("bucket", "would write, read and delete a small object in it")
            else:
                yield self.terminal.busy("trying the bucket", probe_bucket, self.broker)

    def prices(self) -> Iterator[DoctorFinding]:
        finding = clouds.price_finding(self.broker, self.cloud)
        if finding.health != "ok":
            if self.given.dry_run:
                yield dry_run_finding("prices", f"would poll the prices of {self.cloud}")
                return
            with poll_progress(self.terminal, self.broker, [self.cloud]) as watch:
                results = list(polling.poll_now(self.broker, [self.cloud], watch=watch))
            finding = clouds.price_finding(self.broker, self.cloud)
            failed = [result for result in results if result.error]
            for result in failed:
                yield DoctorFinding("prices", Health.PROBLEM, result.error, result.hint or finding.fix)
            if finding.health != "ok" and failed:
                return
        yield finding
        yield from clouds.quota_findings(self.broker, self.cloud)

    def budget(self) -> Iterator[DoctorFinding]:
        findings = list(clouds.budget_findings(self.broker, self.cloud))
        if not findings or findings[0].health == "ok" or self.broker.store.active_policy() is not None:
            yield from findings
            return
        amount = self.given.budget or _DEFAULT_BUDGET
        if self.given.budget is None and self.asks and not POLICY_FILE.exists():
            amount = typer.prompt("Monthly budget in USD", default=_DEFAULT_BUDGET, err=True)
        text = first_policy(filters.price_option("--budget", amount))
        if self.given.dry_run:
            yield dry_run_finding("budget", f"would write {POLICY_FILE} with {amount} a month, and apply it")
            return
        if self.asks:
            self.terminal.say(f"{POLICY_FILE}:", text)
        wanted = self.given.yes or self.given.budget is not None
        if wanted or (self.asks and typer.confirm("Apply this policy?", default=False, err=True)):
            with defer_ctrl_c() as interrupted:
                yield apply_first_policy(self.broker, text, by=self.terminal.actor)
            if interrupted():
                raise KeyboardInterrupt
        else:
            yield replace(
                findings[0], fix=f"gpubroker setup {self.cloud} --budget '{_DEFAULT_BUDGET}', or {findings[0].fix}"
            )

    def trial(self) -> Iterator[DoctorFinding]:
        if self._cloud.engine is None or any(finding.health != "ok" for finding in self.findings):
            return
        if self.given.dry_run:
            yield dry_run_finding("job", f"would offer a trial job of seconds, at most {TRIAL_COST}")
            return
        offer = cheapest_offer(self.broker, self.cloud)
        if offer is None:
            yield DoctorFinding("job", Health.OK, f"no trial job: no machine of {self.cloud} can be started now")
            return
        job = trial_job(self.cloud, offer)
        trial_plan = self.terminal.busy("planning a trial job", plan, self.broker, job, by=self.terminal.actor, limit=1)
        if (refusal := trial_plan.refusal) is not None:
            message = f"the trial job would be refused: {refusal.message}"
            yield DoctorFinding("job", Health.NOTE, message, refusal.hint)
            return
        yes = self.given.run and self.given.yes
        if not yes and not self.asks:
            place = f"{offer.machine if offer.accelerator else 'a CPU machine'} in {offer.region}"
            command = f"`gpubroker setup {self.cloud} --run --yes` submits it"
            yield DoctorFinding("job", Health.OK, f"a trial job on {place} costs at most {TRIAL_COST}: {command}")
            return
        try:
            view, was_interrupted = plan_and_submit(self.terminal, self.broker, job, SubmitManner(yes=yes))
        except typer.Exit as end:
            if end.exit_code:
                raise
            yield DoctorFinding("job", Health.OK, "no trial job was submitted")
            return
        message = f"submitted {view.id} (undo: gpubroker cancel {view.id})"
        yield DoctorFinding("job", Health.OK, message, facts={"job": view.id})
        if not self.terminal.as_json:
            job_details = details(self.broker, view)
            follow_to_end(self.terminal, job_details, SubmitManner(yes=True), was_interrupted=was_interrupted)

    def summary(self, *, ready: bool) -> Iterator[str]:
        """The end: ready, or the first fix of each thing that is missing."""
        if ready:
            end = f"Jobs can start on {self.cloud}." if self._cloud.engine else f"Prices of {self.cloud} are known."
            yield "\nNothing was changed (--dry-run)." if self.given.dry_run else f"\n{end}"
            return
        yield f"\nMissing on the way to {self.cloud}:"
        missing = [finding for finding in self.findings if finding.health != "ok"]
        yield from (
            f"  {number}. {finding.area}: {finding.fix or finding.message.splitlines()[0]}"
            for number, finding in enumerate(missing, 1)
        )
        yield f"Then again: gpubroker setup {self.cloud}"
