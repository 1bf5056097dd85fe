package shop

import rego.v1

default verdict := {"decision": "allow"}

verdict := {"decision": "deny", "reason": "not_your_order", "message": "Only order 42 may be looked up."} if {
	input.intervention_point == "pre_tool_call"
	input.tool.name == "lookup"
	input.policy_target.value.order_id != 42
}

verdict := {"decision": "escalate", "reason": "large_refund", "message": "A person has to look at this."} if {
	input.intervention_point == "pre_tool_call"
	input.tool.name == "refund"
	input.policy_target.value.amount > 100
}

verdict := {
	"decision": "transform",
	"reason": "card_masked",
	"transform": {"path": "$target.card", "value": "**** 1111"},
} if {
	input.intervention_point == "post_tool_call"
	input.policy_target.value.card == "4111 1111 1111 1111"
}

verdict := {"decision": "deny", "reason": "prompt_leak"} if {
	input.intervention_point == "post_model_call"
	contains(input.policy_target.value.content, "system prompt:")
}
