package controlplane

import (
	"net/http"

	"domicile/internal/httpserve"
)

// routes is the admin API (spec §2.3). docs/openapi.yaml describes the same
// routes, under the same names.
func (s *Server) routes() []httpserve.Route {
	const nodes, tenants, regions, moves = "/_shard/nodes", "/_shard/tenants", "/_shard/regions", "/_shard/moves"
	return []httpserve.Route{
		{Method: http.MethodGet, Path: nodes, Name: "list_nodes", Handler: s.readOf(s.byRegion, s.ledRead(s.listNodes, "region"))},
		{Method: http.MethodGet, Path: nodes + "/{node}", Name: "get_node", Handler: s.readOf(s.byRegion, s.ledRead(s.getNode, "region"))},
		{Method: http.MethodPut, Path: nodes + "/{node}", Name: "put_node", Handler: s.changeOf(s.byNode, s.putNode)},
		{Method: http.MethodDelete, Path: nodes + "/{node}", Name: "delete_node", Handler: s.changeOf(s.byRegion, s.deleteNode)},
		{Method: http.MethodPost, Path: nodes + "/{node}/failover", Name: "fail_over", Handler: s.changeOf(s.byRegion, s.failOver)},
		{Method: http.MethodPost, Path: nodes + "/{node}/drain", Name: "drain_node", Handler: s.changeOf(s.byRegion, s.drainNode)},
		{Method: http.MethodGet, Path: nodes + "/{node}/drain", Name: "get_drain", Handler: s.readOf(s.byRegion, s.ledRead(s.getDrain, "region"))},
		{Method: http.MethodDelete, Path: nodes + "/{node}/drain", Name: "end_drain", Handler: s.changeOf(s.byRegion, s.endDrain)},

		{Method: http.MethodGet, Path: tenants, Name: "list_tenants", Handler: s.read(s.listTenants, tenantParams...)},
		{Method: http.MethodGet, Path: tenants + "/{tenant}", Name: "get_tenant", Handler: s.read(s.getTenant)},
		{Method: http.MethodPut, Path: tenants + "/{tenant}", Name: "put_tenant", Handler: s.changeOf(s.byGlobal, s.putTenant)},
		{Method: http.MethodDelete, Path: tenants + "/{tenant}", Name: "delete_tenant", Handler: s.changeOf(s.byGlobal, s.deleteTenant)},
		{Method: http.MethodPost, Path: tenants + "/{tenant}/move", Name: "move_tenant", Handler: s.changeOf(s.byMove, s.moveTenant)},
		{Method: http.MethodGet, Path: tenants + "/{tenant}/explain", Name: "explain", Handler: s.readOf(s.byTenant, s.read(s.explain, "for"))},
		{Method: http.MethodPut, Path: tenants + "/{tenant}/pin", Name: "put_pin", Handler: s.changeOf(s.byTenant, s.putPin)},
		{Method: http.MethodDelete, Path: tenants + "/{tenant}/pin", Name: "delete_pin", Handler: s.changeOf(s.byTenant, s.deletePin)},
		{Method: http.MethodPut, Path: tenants + "/{tenant}/read-replicas/{region}", Name: "put_read_replica", Handler: s.changeOf(s.byTenant, s.putReader)},
		{Method: http.MethodDelete, Path: tenants + "/{tenant}/read-replicas/{region}", Name: "delete_read_replica", Handler: s.changeOf(s.byTenant, s.deleteReader)},

		{Method: http.MethodGet, Path: moves, Name: "list_moves", Handler: s.readOf(s.byRegion, s.ledRead(s.listMoves, moveParams...))},
		{Method: http.MethodGet, Path: moves + "/{move}", Name: "get_move", Handler: s.readOf(s.byRegion, s.ledRead(s.getMove, "region"))},
		{Method: http.MethodDelete, Path: moves + "/{move}", Name: "cancel_move", Handler: s.changeOf(s.byRegion, s.cancelMove)},
		{Method: http.MethodPost, Path: "/_shard/rebalance", Name: "rebalance", Handler: s.changeOf(s.byRegion, s.rebalance)},

		{Method: http.MethodPost, Path: "/_shard/replicas", Name: "repair", Handler: s.change(s.repair)},
		{Method: http.MethodGet, Path: "/_shard/settings", Name: "get_settings", Handler: s.read(s.getSettings)},
		{Method: http.MethodPut, Path: "/_shard/settings", Name: "put_settings", Handler: s.change(s.putSettings)},

		{Method: http.MethodGet, Path: regions, Name: "list_regions", Handler: s.read(s.listRegions)},
		{Method: http.MethodGet, Path: regions + "/{region}", Name: "get_region", Handler: s.read(s.getRegion)},
		{Method: http.MethodPut, Path: regions + "/{region}", Name: "put_region", Handler: s.changeOf(s.byGlobal, s.putRegion)},
		{Method: http.MethodDelete, Path: regions + "/{region}", Name: "delete_region", Handler: s.changeOf(s.byGlobal, s.deleteRegion)},

		{Method: http.MethodGet, Path: "/_shard/tasks", Name: "list_tasks", Handler: s.readOf(s.byRegion, s.ledRead(s.listTasks, "tenant", "region"))},
		{Method: http.MethodGet, Path: "/_shard/tasks/orphans", Name: "list_orphans", Handler: s.readOf(s.byRegion, s.ledRead(s.listOrphans, "region"))},
		{Method: http.MethodDelete, Path: "/_shard/tasks/orphans/{tenant}", Name: "drop_orphan", Handler: s.changeOf(s.byRegion, s.dropOrphan)},
		{Method: http.MethodPost, Path: "/_shard/tasks/census", Name: "census", Handler: s.change(s.census)},
		{Method: http.MethodPost, Path: "/_shard/tasks/{job}", Name: "task", Handler: s.change(s.task)},

		{Method: http.MethodPost, Path: regions + "/{region}/adopt", Name: "adopt_region", Handler: s.changeOf(s.byGlobal, s.handRegion)},
		{Method: http.MethodGet, Path: regions + "/{region}/adopt", Name: "get_adopt", Handler: s.readOf(s.byGlobal, s.ledRead(s.getHandOver))},
		{Method: http.MethodDelete, Path: regions + "/{region}/adopt", Name: "cancel_adopt", Handler: s.changeOf(s.byGlobal, s.cancelHandOver)},
		{Method: http.MethodDelete, Path: regions + "/{region}/return", Name: "cancel_return", Handler: s.changeOf(s.byRegionItself, s.cancelHandOver)},
		{Method: http.MethodPost, Path: regions + "/{region}/return", Name: "return_region", Handler: s.changeOf(s.byRegionItself, s.handRegion)},
		{Method: http.MethodGet, Path: regions + "/{region}/return", Name: "get_return", Handler: s.readOf(s.byWhoReturns, s.ledRead(s.getHandOver))},
		{Method: http.MethodPost, Path: "/_shard/intakes/{job}", Name: "intake", Handler: s.change(s.intake)},

		{Method: http.MethodGet, Path: "/_shard/group", Name: "get_group", Handler: s.getGroup},
		{Method: http.MethodPost, Path: "/_shard/group/servers", Name: "add_server", Handler: s.change(s.addServer)},
		{Method: http.MethodDelete, Path: "/_shard/group/servers/{server}", Name: "remove_server", Handler: s.change(s.removeServer)},
		{Method: http.MethodPost, Path: "/_shard/group/members", Name: "put_member", Handler: s.change(s.putMember)},
		{Method: http.MethodPost, Path: "/_shard/group/transfer", Name: "transfer_leadership", Handler: s.change(s.transfer)},

		{Method: http.MethodGet, Path: "/_shard/backup", Name: "backup", Handler: s.backup},
		{Method: http.MethodPost, Path: "/_shard/restore", Name: "restore", Handler: s.restore},
		{Method: http.MethodGet, Path: "/_shard/recovery", Name: "get_recovery", Handler: s.ledRead(s.getRecovery)},
		{Method: http.MethodPost, Path: "/_shard/recovery/write-off", Name: "write_off_for_recovery", Handler: s.change(s.forgoNode)},
		{Method: http.MethodPost, Path: "/_shard/recovery/adopt", Name: "adopt", Handler: s.change(s.adopt)},

		{Method: http.MethodGet, Path: "/_shard/events", Name: "events", Handler: s.serveEvents},
		{Method: http.MethodGet, Path: "/_shard/subscribe", Name: "subscribe", Handler: s.subscribe},

		{Method: http.MethodGet, Path: "/_health", Name: "health", Open: true, Handler: s.health},
		{Method: http.MethodGet, Path: "/_ready", Name: "ready", Open: true, Handler: s.ready},
		{Method: http.MethodGet, Path: "/_metrics", Name: "metrics", Handler: s.serveMetrics},
	}
}
