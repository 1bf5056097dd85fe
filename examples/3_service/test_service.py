def test_a_refund_over_http_and_over_a_killed_server(serve, follow, tmp_path):
    server, client = serve()
    order = {"question": "Refund order 42", "conversation": "c1"}
    started = client.post("/runs", json=order, headers={"x-user": "tom", "idempotency-key": "k"})
    run = started.json()["run"]
    assert (started.status_code, started.headers["location"]) == (202, f"/runs/{run}")
    seen = follow(client, run, until="request_opened")
    assert client.get(f"/runs/{run}/events", headers={"x-user": "bob"}).status_code == 403
    assert client.get("/inbox", headers={"x-user": "tom"}).status_code == 403
    assert client.get("/inbox", headers={"x-user": "eve"}).json() == []      # it is for ana
    [request] = client.get("/inbox", headers={"x-user": "ana"}).json()
    assert (request["tool"], request["arguments"]) == ("refund", {"order_id": 42, "amount": 30.0})
    server.kill()                                                            # kill -9; what waits are rows
    server.wait()

    server, client = serve()
    again = client.post("/runs", json=order, headers={"x-user": "tom", "idempotency-key": "k"})
    assert again.json() == {"run": run}
    url, ana, eve = f"/inbox/{request['id']}", {"x-user": "ana"}, {"x-user": "eve"}
    assert client.post(url, json={"verb": "approve"}, headers=eve).json()["error"] == "WrongParty"
    stale = client.post(url, json={"verb": "approve", "digest": "another"}, headers=ana)
    assert (stale.status_code, stale.json()["error"]) == (409, "DigestMismatch")
    assert client.post(url, json={"verb": "approve", "digest": request["digest"]}, headers=ana).status_code == 200
    seen += follow(client, run, until="run_finished", after=seen[-1][0])
    assert seen == follow(client, run, until="run_finished")                 # nothing lost, nothing twice
    assert [data["payload"]["text"] for _, data in seen if data["kind"] == "model_delta"] == ["You get 30.00 back."]
    late = client.post(url, json={"verb": "reject"}, headers=ana)
    assert (late.status_code, late.json()["resolution"]["decided_by"]["id"]) == (409, "ana")
    assert (tmp_path / "till").read_text() == "42 30.00\n"


def test_cancelled_while_it_waits(serve, follow, tmp_path):
    _, client = serve()
    headers = {"x-user": "tom", "idempotency-key": "k"}
    run = client.post("/runs", json={"question": "Refund", "conversation": "c"}, headers=headers).json()["run"]
    follow(client, run, until="request_opened")
    assert client.delete(f"/runs/{run}", headers=headers).status_code == 202
    assert follow(client, run, until="run_finished")[-1][1]["payload"]["status"] == "cancelled"
    assert client.get("/inbox", headers={"x-user": "ana"}).json() == []
    assert not (tmp_path / "till").exists()
