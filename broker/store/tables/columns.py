"""The columns of all tables, for `broker.store.tables.plain`. Written by tests/store/plain_columns.py."""

from __future__ import annotations

COLUMNS = {
    "anomaly_answer": ("team! day! answer answered_at:big answered_by reason"),
    "api_request": ("person! key! digest at:big status:int body"),
    "api_token": (
        "id! person label scopes digest made_at:big made_by expires_at:big revoked_at:big revoked_by used_at:big"
    ),
    "attempt_event": ("job_id! seq:int! attempt:int at:big kind body"),
    "audit_log": ("number:big! at:big person origin token action subject outcome before after reason"),
    "budget_mark": ("budget! period_start:big! amount:big! mark! at:big"),
    "charge": ("provider! key! starts:big! ends:big! line! micros:big estimated:bool source read_at:big"),
    "decision": (
        "id:id! at:big action user_name job_name job_id attempt:int pool answer policy_version facts_hash body"
    ),
    "device_login": (
        "digest! user_code client address scopes made_at:big ends_at:big asked_at:big person granted:bool"
    ),
    "holding": (
        "number:int! kind accelerator gpus:int provider site starts:big ends:big upfront:big hourly:big "
        "watts:float note order_id proof added_at:big added_by removed_at:big removed_by"
    ),
    "holding_proof": ("sha256! name content:bytes"),
    "identity": ("issuer! subject! person linked_at:big"),
    "job": ("id! name user_name team project environment state closed:bool submitted_at:big view live array_id"),
    "kept_answer": ("provider! address! at:big version etag last_modified digest content:bytes"),
    "ledger_balance": (
        "job_id! money! available:big held:big spent:big holds_to:big user_name team project workload environment "
        "holds_from:big burns:big"
    ),
    "ledger_entry": (
        "id:id! movement_id movement account micros:big money at:big covers_from:big covers_to:big job_id "
        "user_name team project workload environment attempt:int provider region capacity_type accelerator "
        "gpus:int note rate:big"
    ),
    "machine_time": (
        "job_id! attempt:int! since:big until:big user_name team project workload environment money provider "
        "region capacity_type instance_type accelerator count:int nodes:int micros:big folded:big"
    ),
    "metering": (
        "job_id! attempt:int! settled:big settled_to:big since:big rate:big cost:big cost_rest:big moved:big ended:bool"
    ),
    "movement_sum": (
        "job_id! attempt:int! money! movement! micros:big movements:big covers_from:big covers_to:big at:big user_name"
    ),
    "notice": ("key! target! title body severity made_at:big tries:int next_try:big delivered_at:big error thread=''"),
    "offer": (
        "id:big! pool_id:big source polled_by run:big as_of:big changed_at:big ended_at:big superseded:bool "
        "micros:big availability unavailable_because score:float interruption_rate:float slots:int amortised:big "
        "cpus:float memory_gib:float interconnect engine money reference:bool bill_minimum:big "
        "bill_granularity:big bill_free_within:big max_age:big signalled_at:big doubt doubt_detail='' trusted:big "
        "accelerator='' count:int=0"
    ),
    "page_session": ("digest! person token made_at:big seen_at:big ends_at:big"),
    "person": ("name! service:bool roles teams added_at:big disabled_at:big"),
    "policy_set": ("number:int! activated_at:big activated_by sha256 files note"),
    "poll_run": (
        "id:id! provider started:big finished:big seen:int changed:int complete:bool skipped error status=ok "
        "hint='' gone:int=0 samples={}"
    ),
    "pool": ("id:big! key provider region zone instance_type accelerator count:int capacity_type term_months:int"),
    "price_acceptance": ("number:int! at:big accepted_by provider ended:int what note"),
    "price_change": ("series:big! at:big! micros:big availability:small learned:big"),
    "price_watch": ("name! body state"),
    "provider_sign_in": ("state! browser nonce verifier after ends_at:big"),
    "purchase": ("id! intended_at:big closed:bool view"),
    "purchase_event": ("purchase_id! seq:int! at:big kind body"),
    "purchase_quote": ("number:int! at:big body"),
    "setting": ("key! value"),
    "sign_in_link": ("digest! person made_by made_at:big ends_at:big used_at:big"),
    "signal_change": ("series:big! at:big! score:float interruption_rate:float"),
    "spend_group": ("id:id! key money user_name team project workload environment"),
    "spend_sum": ("size:big! group_id:big! slot:big! micros:big"),
    "standing_grant": (
        "number:int! granted_by at:big until:big total:big whom note revoked_at:big revoked_by closed_use:big=0"
    ),
    "standing_use": ("number:int! job_id! closed:bool=false"),
    "statement": ("month! frozen_at:big frozen_by body"),
    "use_sum": (
        "slot:big! part! signature money user_name team project workload environment provider region capacity_type "
        "instance_type accelerator jobs:big attempts:big gpu_time:big machine_time:big cash:big amortised:big "
        "sandbox:big"
    ),
}
