"""Isolation by attack: each is tried for real, from where a candidate's code would run, and gets through without a box.

Tests named `attempts.py::x` are tried by `test_attempts.py` in every seat: tracer, interpreter and compiler (as taken
over), in bubblewrap and in Landlock, started by root and by an ordinary user; the others say where they run.
`test_table.py` holds this table against the tests.

| attack | test | what stops it |
| --- | --- | --- |
| TCP | attempts.py::tcp | no network (namespace); seccomp refuses sockets |
| TCP | attempts.py::tcp_with_data_in_its_first_packet | as above (Landlock lets MSG_FASTOPEN through) |
| TCP | attempts.py::tcp_by_several_paths | as above (Landlock lets MPTCP through) |
| TCP | attempts.py::tcp_server | as above |
| UDP | attempts.py::udp | as above (Landlock knows no UDP) |
| unix sockets | attempts.py::unix_socket | mounts; seccomp refuses sockets |
| unix sockets | attempts.py::unix_socket_without_a_file | network namespace; Landlock's scope; seccomp |
| the user's home and keys | attempts.py::read_a_key_in_the_home | mounts; Landlock |
| the user's home and keys | attempts.py::list_the_home | mounts; Landlock |
| the user's home and keys | attempts.py::find_a_key_in_an_environment | a fresh environment; processes of others are shut |
| the user's home and keys | attempts.py::read_a_key_of_the_keyring | seccomp refuses keyctl (both boxes inherit the keyring) |
| the user's home and keys | attempts.py::find_an_inherited_file | files are closed before the box starts |
| reading outside | attempts.py::read_a_file_outside | mounts; Landlock |
| reading outside | attempts.py::read_the_checkout | mounts; Landlock |
| reading outside | attempts.py::read_who_uses_the_machine | mounts; Landlock |
| reading outside | attempts.py::read_through_a_link | mounts; Landlock looks at what a link leads to |
| reading outside | attempts.py::read_through_the_root_of_another_process | process namespace; Landlock's rule on ptrace |
| reading outside | attempts.py::read_by_handle | no such capability; seccomp |
| writing outside | attempts.py::write_a_file_outside | mounts; Landlock |
| writing outside | attempts.py::make_a_file_outside | mounts; Landlock |
| writing outside | attempts.py::delete_a_file_outside | mounts; Landlock |
| writing outside | attempts.py::take_a_file_outside_by_a_second_name | mounts; Landlock |
| writing outside | attempts.py::change_the_mode_of_the_users_own_file | mounts; seccomp (Landlock does not) |
| writing outside | attempts.py::change_the_time_of_the_users_own_file | mounts; seccomp (Landlock does not) |
| writing outside | attempts.py::change_an_attribute_of_the_users_own_file | mounts; seccomp (Landlock does not) |
| writing outside | attempts.py::set_how_the_kernel_behaves | an unprivileged user; Landlock |
| writing outside | attempts.py::set_how_the_kernel_manages_memory | no /sys; Landlock |
| fork bomb | test_hogs.py::test_a_fork_bomb_is_bounded | RLIMIT_NPROC, and never as root |
| surviving orphan | test_orphans.py::test_nothing_survives_a_process_that_ends | process namespace; `landlock.py` as subreaper |
| surviving orphan | test_orphans.py::test_nothing_survives_the_agent_that_is_killed | PDEATHSIG, then as above |
| memory hog | test_hogs.py::test_more_memory_than_half_the_machines_is_refused | RLIMIT_DATA |
| memory hog | test_hogs.py::test_a_hog_of_memory_ends_with_an_error_of_its_own | RLIMIT_DATA: an error in its own process |
| memory hog | test_hogs.py::test_it_is_the_first_that_the_kernel_ends_when_memory_runs_out | oom_score_adj |
| hog of processors | test_hogs.py::test_a_hog_of_processors_lets_others_go_first | the scheduler's nice value |
| disk filler | test_hogs.py::test_a_disk_is_never_filled | ended when the disk has less than LEAST_FREE |
| disk filler | test_hogs.py::test_a_disk_that_somebody_else_fills_is_not_held_against_the_process | as above |
| stdout flood | test_hogs.py::test_a_flood_of_output_is_kept_to_its_end | OUTPUT_LIMIT |
| stdout flood | test_hogs.py::test_a_flood_of_output_ends_at_the_largest_file | RLIMIT_FSIZE on its log |
| ptrace | attempts.py::trace_another_process | process namespace; Landlock; seccomp |
| ptrace | attempts.py::read_anothers_memory | as above |
| other processes | attempts.py::see_another_process | process namespace (Landlock does not hide them) |
| other processes | attempts.py::signal_another_process | process namespace; Landlock's scope (Linux 6.12) |
| other processes | attempts.py::read_anothers_environment | process namespace; Landlock's rule on ptrace |
| other processes | attempts.py::read_anothers_open_file | as above |
| other processes | attempts.py::take_anothers_open_file | as above; seccomp |
| other processes | attempts.py::limit_another_process | process namespace; seccomp (Landlock does not) |
| other processes | attempts.py::read_memory_that_others_share | IPC namespace; seccomp (Landlock does not) |
| powers of the kernel | attempts.py::become_root | no capability |
| powers of the kernel | attempts.py::set_the_host_name | UTS namespace; no capability |
| powers of the kernel | attempts.py::make_a_user_namespace | seccomp (as root, bubblewrap lets it through) |
| powers of the kernel | attempts.py::mount_a_file_system | seccomp |
| powers of the kernel | attempts.py::enter_anothers_namespace | process namespace; seccomp |
| powers of the kernel | attempts.py::use_io_uring | seccomp |
| powers of the kernel | attempts.py::use_userfaultfd | seccomp |
| powers of the kernel | attempts.py::use_performance_counters | seccomp |
| powers of the kernel | attempts.py::load_a_program_into_the_kernel | seccomp |
| powers of the kernel | attempts.py::read_the_kernels_log | no capability |
| symlinks and `..` in a bundle | test_answers.py::test_the_agent_reads_no_file_of_the_users_for_it | keys are hashes; O_NOFOLLOW |
| symlinks and `..` in a bundle | test_answers.py::test_it_refuses | as above; plain files only |
| symlinks and `..` in a bundle | ../bundle/test_validate.py::test_it_refuses_an_artefact_that | as above |
| symlinks and `..` in a bundle | ../bundle/test_validate.py::test_a_manifest_that_is_a_symlink_is_refused | as above |
| a huge allocation | test_answers.py::test_a_launcher_that_asks_for_too_much_is_refused | the device's memory is the limit |
| a huge allocation | test_interpreted.py::test_it_gets_no_good_verdict_and_costs_the_judge_nothing | views stay in their files |
| a million launches | test_answers.py::test_a_launcher_that_asks_for_too_much_is_refused | MOST_STEPS, while tracing |
| a million launches | test_answers.py::test_it_refuses | MOST_STEPS, while reading |
| C smuggled through a signature string | test_smuggling.py::test_c_smuggled_through_a_signature_is_refused | a closed grammar |
| C smuggled through a signature string | test_smuggling.py::test_our_launcher_asks_no_compiler_where_tritons_does | no C is made |
| forged metadata | ../bundle/test_validate.py::test_it_refuses | a closed grammar, and the cubin's own table |
| forged metadata | ../bundle/test_validate.py::test_it_refuses_a_text_with | strict JSON |
| forged metadata | test_answers.py::test_it_refuses | as above, for what a tracer answers |
| a cubin swapped after the build | test_code.py::test_a_cubin_swapped_after_the_build_is_refused | its hash is its name |
| a cubin swapped after the build | test_code.py::test_a_cubin_swapped_together_with_its_hash_is_refused | the bundle's id |
| honest TTGIR paired with another cubin | test_code.py::test_an_honest_ttgir_cannot_be_paired_with_another_cubin | two processes |
| PTX in place of a cubin | test_code.py::test_ptx_in_place_of_a_cubin_is_refused | ELF for CUDA, or nothing |
| device globals that keep state | test_code.py::test_a_kernel_that_counts_its_launches_is_refused | no `.nv.global` |
| device globals that keep state | test_code.py::test_a_kernel_that_takes_memory_of_the_devices_heap_is_refused | no malloc |
| device globals that keep state | ../bundle/test_validate.py::test_it_refuses_a_cubin_with | no `.nv.global` |
| a planted library in a compile cache | test_smuggling.py::test_a_library_planted_in_a_compile_cache_is_not_there_for_the_next_process | a fresh folder for every process |
"""  # noqa: E501
